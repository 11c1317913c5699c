"""Both machines of a link against each other, and each against a hostile peer."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantry.replication import master, slave
from gantry.replication.epochs import table_of
from gantry.replication.handshake import Hello, MasterStatus, No, Welcome, judge
from gantry.replication.haproof import Keys
from gantry.replication.master import Feeding
from gantry.replication.slave import Following
from gantry.wire import ha
from gantry.wire.ha import Ack, FrameType

SECRET = Keys(b"a secret of many bytes")
MINE = MasterStatus("cluster", "broker-a", "store-m", 2, table_of([(1, 0), (2, 400)]), 0, 1000, 1 << 20)
SLAVE = Hello("cluster", "broker-a", 1, "store-s", table_of([(1, 0)]), 0, 300, 200, 1 << 20)


def feeding(keys: Keys = SECRET, window: int = 1 << 20, mine: MasterStatus = MINE) -> Feeding:
    return Feeding(keys, b"m" * 32, lambda hello: judge(mine, hello, lambda end: hello.tail), window)


def following(keys: Keys = SECRET, hello: Hello = SLAVE) -> Following:
    return Following(keys, b"s" * 32, hello, hello.end)


def frames_of(data: bytes) -> list[tuple[FrameType, memoryview]]:
    found, at = [], 0
    while at < len(data):
        size = ha.size_of(data[at:], ha.FRAME_BYTES_MAX)
        found.append((ha.kind_of(data[at + 4]), memoryview(data)[at + 5 : at + size]))
        at += size
    assert at == len(data)
    return found


def sent(actions: list[master.Action] | list[slave.Action]) -> bytes:
    return b"".join(one.data for one in actions if isinstance(one, master.SendToSlave | slave.SendToMaster))


def greet(one: Feeding, other: Following) -> tuple[list[master.Action], list[slave.Action]]:
    """The handshake; what the last words made each of them do."""
    challenge = sent(one.preamble(other.preamble()))
    hello = other.frame(*frames_of(challenge)[0])
    if not sent(hello):
        return [], hello
    answer = one.frame(*frames_of(sent(hello))[0])
    welcomed: list[slave.Action] = []
    for kind, body in frames_of(sent(answer)):
        welcomed += other.frame(kind, body)
    return answer, welcomed


def reason(actions: list[master.Action] | list[slave.Action]) -> str:
    ended = actions[-1]
    assert isinstance(ended, master.SlaveLinkEnded | slave.MasterLinkEnded), actions
    return ended.reason


def test_a_slave_that_knows_the_secret_follows_from_its_end() -> None:
    one, other = feeding(), following()
    answer, welcomed = greet(one, other)
    assert isinstance(answer[-1], master.Welcomed) and isinstance(welcomed[-1], slave.Adopt)
    assert not one.has_room and not other.ack(), "nothing is sent before the welcome is on the slave's disk"
    other.ready()
    acked = one.frame(*frames_of(other.ack())[0])
    assert acked == [master.Acked(Ack(300, 300, 0))] and one.has_room and one.position == 300


def test_neither_goes_on_with_a_peer_that_does_not_know_the_secret() -> None:
    one, other = feeding(Keys(b"another secret of many")), following()
    _, told = greet(one, other)
    assert "does not know our secret" in reason(told)
    # A slave that does not check cannot get on either.
    one, other = feeding(), following()
    one.preamble(other.preamble())
    hello = ha.frame(FrameType.HELLO, bytes(32) + SLAVE.encode())
    assert "does not know the secret" in reason(one.frame(*frames_of(hello)[0]))


def test_while_the_secret_is_changed_either_key_will_do_and_afterwards_only_the_new_one() -> None:
    old, new = b"a secret of many bytes", b"the secret to come, new"
    steps = [Keys(old), Keys(old, new), Keys(new, old), Keys(new)]
    for here, there in [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)]:
        answer, _ = greet(feeding(steps[here]), following(steps[there]))
        assert isinstance(answer[-1], master.Welcomed), (here, there)
    _, told = greet(feeding(steps[3]), following(steps[0]))
    assert "does not know our secret" in reason(told)


def test_a_refused_slave_hears_why() -> None:
    one, other = feeding(), following(hello=replace(SLAVE, group="other"))
    answer, told = greet(one, other)
    assert "set brokerName" in reason(answer) and "the master refuses" in reason(told)


def test_a_slave_that_must_be_cut_ends_its_link() -> None:
    hello = replace(SLAVE, end=450, confirmed=400)
    answer, told = greet(feeding(), following(hello=hello))
    assert "cut its log at 400" in reason(answer)
    assert isinstance(told[-1], slave.Reshape) and told[-1].welcome.at == 400


@pytest.mark.parametrize("first", [bytes(8), (123456).to_bytes(8, "big"), b"\0\0\0\1"])
def test_a_slave_of_rocketmq_is_recognised(first: bytes) -> None:
    assert "RocketMQ slave" in reason(feeding().preamble(first))


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n\r\n".ljust(40), b"GMQrepl\x02" + bytes(32), b"\xff" * 40])
def test_one_that_speaks_another_protocol_is_not_answered(first: bytes) -> None:
    actions = feeding().preamble(first)
    assert not sent(actions) and "does not speak this protocol" in reason(actions)


def pair(window: int = 1 << 20) -> tuple[Feeding, Following]:
    one, other = feeding(window=window), following()
    greet(one, other)
    other.ready()
    one.frame(*frames_of(other.ack())[0])
    return one, other


def chunk(offset: int, records: bytes, epoch: int = 2, confirmed: int = 0) -> tuple[FrameType, memoryview]:
    return frames_of(ha.chunk_head(epoch, offset, confirmed, 0, len(records)) + records)[0]


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (chunk(301, b"xx"), "our log ends at 300"),
        (chunk(300, b"xx", epoch=1), "of epoch 1"),
        ((FrameType.CHUNK, memoryview(b"short")), "a chunk of 5 bytes"),
        ((FrameType.BEAT, memoryview(b"short")), "a beat of 5 bytes"),
        ((FrameType.METADATA, memoryview(bytes(8) + b"{}")), "expected an array"),
        ((FrameType.METADATA, memoryview(bytes(8) + b"[" * 100_000)), "not JSON"),
        ((FrameType.WELCOME, memoryview(bytes(40))), "WELCOME to a slave that is following"),
        ((FrameType.ACK, memoryview(bytes(24))), "ACK to a slave"),
    ],
)
def test_what_a_master_may_not_send_ends_the_link(frame: tuple[FrameType, memoryview], why: str) -> None:
    _, other = pair()
    assert why in reason(other.frame(*frame))
    assert not other.ack()


@pytest.mark.parametrize(
    ("ack", "why"),
    [
        (ha.ack(301, 300, 0), "sent up to 300"),
        (ha.ack(299, 299, 0), "after"),
        (ha.ack(300, 299, 0), "after"),
        (ha.ack(300, 301, 0), "of which 300 are written"),
        (ha.ack(300, 300, 1), "metadata 1"),
        (ha.frame(FrameType.CHUNK, bytes(60)), "CHUNK on a link"),
        (ha.frame(FrameType.LEAVE, b"x"), "LEAVE on a link"),
    ],
)
def test_an_acknowledgement_of_what_was_not_sent_ends_the_link(ack: bytes, why: str) -> None:
    one, _ = pair()
    assert why in reason(one.frame(*frames_of(ack)[0]))
    assert not one.has_room


@given(st.binary(max_size=200), st.sampled_from(FrameType))
def test_hostile_bytes_never_raise_and_never_feed(body: bytes, kind: FrameType) -> None:
    one, other = feeding(), following()
    one.preamble(other.preamble())
    if one.frame(kind, memoryview(body)):
        assert not one.has_room and not one.is_known
    for each in (following(), pair()[1]):
        before = each.replica.written
        each.frame(kind, memoryview(body))
        assert each.replica.written == before


@settings(max_examples=200)
@given(st.integers(0, 2**32), st.integers(1, 400))
def test_in_any_interleaving_the_log_is_the_masters_and_no_promise_is_ahead_of_it(seed: int, window: int) -> None:
    rng = random.Random(seed)
    one, other = pair(window)
    log = bytearray(rng.randbytes(1000))
    copy = bytearray(log[:300])
    flushed, changes, sent_changes, kept = 300, 0, 0, 0
    down: deque[bytes] = deque()
    up: deque[bytes] = deque()
    promised = 300
    for _ in range(120):
        what = rng.choice(("write", "feed", "change", "deliver", "flush", "keep", "answer", "deliver", "answer"))
        if what == "write":
            log += rng.randbytes(rng.randint(1, 90))
        elif what == "change":
            changes += 1
        elif what == "feed" and one.has_room:
            if changes > one.metadata:
                down.append(ha.metadata(changes, [sent_changes]))
                one.told(changes)
            end = min(len(log), one.position + rng.randint(1, 60))
            if end > one.position:
                start = one.position
                down.append(ha.chunk_head(2, start, promised, 0, end - start) + bytes(log[start:end]))
                one.sent(start, end)
                assert one.position - one.acked.written < window + 60, "more is in flight than the window and a chunk"
        elif what == "deliver" and down:
            for action in other.frame(*frames_of(down.popleft())[0]):
                if isinstance(action, slave.Append):
                    assert action.offset == len(copy)
                    copy += action.records
                    other.appended(action.offset, len(copy))
                assert not isinstance(action, slave.MasterLinkEnded), action
        elif what == "flush":
            flushed = max(flushed, rng.randint(flushed, len(copy)))
            other.replica.hold(flushed)
        elif what == "keep":
            kept = max(kept, rng.randint(kept, other.replica.applied))
            other.replica.keep(kept)
        data = other.ack()
        if data:
            up.append(data)
        if what == "answer" and up:
            for reply in one.frame(*frames_of(up.popleft())[0]):
                assert isinstance(reply, master.Acked), reply
                assert reply.ack.held <= flushed and reply.ack.written <= len(copy)
                promised = max(promised, reply.ack.held)
        assert copy == log[: len(copy)]


def test_a_judgement_compares_the_bytes_before_the_end() -> None:
    hello = replace(SLAVE, tail=77)
    same = judge(MINE, hello, lambda end: 77 if end == 300 else 0)
    other = judge(MINE, hello, lambda end: 78)
    assert isinstance(same, Welcome)
    assert isinstance(other, No) and "differ" in other.reason
