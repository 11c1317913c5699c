"""The policy loop over a run: plain messages together, others by themselves, order kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gantry.append.admit import MessageLimits
from gantry.errors import Refusal
from gantry.leaves import frames, properties
from gantry.model import names
from gantry.store.commitlog import RunTooLongError
from gantry.store.settings import Flush
from testkit.fake_connection import FakeConnection
from testkit.sendplay import SendPlay, message


def entry(body: bytes, packed: bytes = b"") -> bytes:
    size = 22 + len(body) + len(packed)
    head = size.to_bytes(4, "big") + bytes(12) + len(body).to_bytes(4, "big")
    return head + body + len(packed).to_bytes(2, "big") + packed


def batch_of(*bodies: bytes, **fields: object) -> frames.Send:
    return message(body=b"".join(map(entry, bodies)), batch=True, **fields)  # type: ignore[arg-type]


def test_a_run_goes_into_the_log_as_one_and_in_order() -> None:
    play = SendPlay(Flush.SYNC)
    appends: list[int] = []
    play.store.written.listen(appends.append)
    play.send(*[message(body=b"%d" % number) for number in range(5)])
    assert len(appends) == 1 and len(play.acks) == 5
    play.flush()
    assert play.codes() == [0] * 5 and len(play.connection.chunks) == 1
    assert play.stored("orders") == [b"0", b"1", b"2", b"3", b"4"]


def test_refused_messages_leave_the_others_alone() -> None:
    play = SendPlay()
    play.send(message(body=b"1"), message("no good!"), message(body=b"2"), message(body=bytes(2000)))
    assert sorted(play.codes()) == [0, 0, 13, 29]
    assert play.stored("orders") == [b"1", b"2"]
    assert play.sending.refused == {29: 1, 13: 1}


def test_when_something_raises_half_way_only_what_did_not_begin_wants_an_answer() -> None:
    play = SendPlay()
    sends = [message(body=b"1"), message("no good!"), batch_of(b"2"), message(body=b"3"), batch_of(b"4"), message()]

    def fail(*_: object) -> Refusal | None:
        raise ZeroDivisionError("division by zero")

    real, play.admission.admit_batch = play.admission.admit_batch, fail  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        play.send(*sends)
    assert sorted(play.codes()) == [0, 29] and play.unanswered() == sends[2:]
    play.admission.admit_batch = real  # type: ignore[method-assign]
    play.store.append = fail  # type: ignore[method-assign,assignment]
    with pytest.raises(ZeroDivisionError):
        play.send(*sends)
    assert play.codes() == [29] and play.unanswered() == [sends[0], *sends[2:]], "not appended"


def test_what_one_turn_brought_is_one_run_of_the_log_and_each_peer_hears_of_its_own() -> None:
    play, other = SendPlay(), FakeConnection("10.0.0.2:4711")
    play.send(message(body=b"0"))  # the topic exists from here on
    appended: list[int] = []
    real = play.store.append

    def append(sends: list[frames.Send], *rest: bool) -> int:
        appended.append(len(sends))
        return real(sends, *rest)

    play.store.append = append  # type: ignore[method-assign,assignment]
    first, second = [message(body=b"1")], [message(body=b"2"), message(body=b"3")]
    play.codes()
    play.sending.send_run(play.connection, first)  # type: ignore[arg-type]
    play.sending.send_run(other, second)  # type: ignore[arg-type]
    assert not appended and play.connection.take() == other.take() == []
    play.sending.append_gathered()
    assert appended == [3] and play.stored("orders") == [b"0", b"1", b"2", b"3"]
    assert [reply.opaque for reply in play.connection.take()] == [first[0].opaque]
    assert [reply.opaque for reply in other.take()] == [send.opaque for send in second]
    assert [send.born_host for send in first + second] == [play.connection.born_host, *[other.born_host] * 2]


def test_plain_sends_of_several_connections_are_gathered_at_once_and_others_not_at_all() -> None:
    play, other = SendPlay(), FakeConnection("10.0.0.2:4711")
    play.send(message(body=b"0"))
    play.codes()
    plain = [(play.connection, [message(body=b"1")]), (other, [message(body=b"2")])]
    assert play.sending.gather(plain) and play.stored("orders") == [b"0"]  # type: ignore[arg-type]
    play.sending.append_gathered()
    assert play.stored("orders") == [b"0", b"1", b"2"]
    assert [reply.code for reply in play.connection.take() + other.take()] == [0, 0]
    mixed = [(play.connection, [message(body=b"3")]), (other, [message("no good!")])]
    assert not play.sending.gather(mixed) and not play.sending.gathered_bytes  # type: ignore[arg-type]
    play.gate.shut("test", Refusal(14, "not now"))
    assert not play.sending.gather(plain) and not play.sending.gathered_bytes, "each gets its refusal"  # type: ignore[arg-type]


def test_what_is_gathered_stands_before_what_the_same_turn_brings_later() -> None:
    play = SendPlay()
    play.send(message(body=b"0"))
    play.sending.send_run(play.connection, [message(body=b"1")])  # type: ignore[arg-type]
    play.sending.send_run(play.connection, [message("no good!"), message(body=b"2")])  # type: ignore[arg-type]
    assert play.stored("orders") == [b"0", b"1", b"2"] and not play.sending.gathered_bytes


def _half(body: bytes, queue_id: int) -> frames.Send:
    send = message(body=body, queue_id=queue_id)
    send.properties = b"TRAN_MSG\x01true\x02UNIQ_KEY\x01" + body + b"\x02"
    send.traits, send.unique_key, send.keys, send.tags_code = properties.scan(send.properties)
    return send


def test_halves_of_one_turn_are_one_run_behind_the_plain_ones_and_replies_name_the_queues_they_asked_for() -> None:
    play, other = SendPlay(), FakeConnection("10.0.0.2:4711")
    play.send(message(body=b"0"))
    play.codes()
    play.sending.send_run(other, [_half(b"a", 2), _half(b"b", 1)])  # type: ignore[arg-type]
    play.sending.send_run(play.connection, [message(body=b"1")])  # type: ignore[arg-type]
    play.sending.send_run(play.connection, [_half(b"c", 3)])  # type: ignore[arg-type]
    end = play.store.written.offset
    assert play.connection.take() == other.take() == []
    play.sending.append_gathered()
    assert play.stored("RMQ_SYS_TRANS_HALF_TOPIC") == [b"a", b"b", b"c"] and play.stored("orders") == [b"0", b"1"]
    entry = play.store.reader.entry("orders", 0, 1)
    assert entry is not None and entry[0] == end, "plain ones first"
    replies = other.take()
    assert [(one.ext["queueId"], one.ext["queueOffset"]) for one in replies] == [("2", "0"), ("1", "1")]
    assert [one.ext["queueId"] for one in play.connection.take()] == ["0", "3"]
    assert play.unanswered() == [] and not play.sending.gathered_bytes


def test_every_way_to_send_what_is_no_half_tells_whose_it_is() -> None:
    play = SendPlay()
    play.send(message(group="plain"))
    play.send(message(group="first of a mixed run"), batch_of(b"1", b"2", group="batches"))
    play.send(message(pairs={"UNIQ_KEY": "u", "DELAY": "1"}, group="delays"))
    play.send(_half(b"a", 0))
    assert play.plain_groups == ["plain", "first of a mixed run", "batches", "delays"]


def test_a_half_is_not_refused_for_anothers_and_names_its_queue_after_a_second_try() -> None:
    play, other = SendPlay(), FakeConnection("10.0.0.2:4711")
    play.send(message(body=b"0"))
    real = play.store.append

    def append(sends: list[frames.Send], *rest: bool) -> int:
        if any(send.body == b"bad" for send in sends):
            raise RunTooLongError("does not fit a segment")
        return real(sends, *rest)

    play.store.append = append  # type: ignore[method-assign,assignment]
    play.codes()
    play.sending.send_run(play.connection, [_half(b"good", 2)])  # type: ignore[arg-type]
    play.sending.send_run(other, [_half(b"bad", 1)])  # type: ignore[arg-type]
    play.sending.append_gathered()
    assert [(one.code, one.ext["queueId"]) for one in play.connection.take()] == [(0, "2")]
    assert [one.code for one in other.take()] == [13]
    assert play.unanswered() == [] and play.stored("RMQ_SYS_TRANS_HALF_TOPIC") == [b"good"]


def test_much_is_not_gathered() -> None:
    play = SendPlay()
    play.send(message(body=b"0"))
    play.connection.batch_bytes = 1 << 20
    play.sending.send_run(play.connection, [message(body=b"1")])  # type: ignore[arg-type]
    assert play.stored("orders") == [b"0", b"1"] and not play.sending.gathered_bytes


def test_nobody_is_refused_for_anothers_message() -> None:
    play, other = SendPlay(), FakeConnection("10.0.0.2:4711")
    play.send(message(body=b"0"))
    real = play.store.append

    def append(sends: list[frames.Send], *rest: bool) -> int:
        if any(send.body == b"too long" for send in sends):
            raise RunTooLongError("does not fit a segment")
        return real(sends, *rest)

    play.store.append = append  # type: ignore[method-assign,assignment]
    play.codes()
    play.sending.send_run(play.connection, [message(body=b"1")])  # type: ignore[arg-type]
    play.sending.send_run(other, [message(body=b"too long")])  # type: ignore[arg-type]
    play.sending.append_gathered()
    assert [reply.code for reply in play.connection.take()] == [0]
    assert [reply.code for reply in other.take()] == [13]
    assert play.unanswered() == [], "all have their answer"
    record = play.store.reader.record_at(play.store.reader.entry("orders", 0, 1)[0])  # type: ignore[index]
    assert record is not None and record.properties.count(b"MSG_REGION") == 1, "sealed twice, completed once"



def test_when_one_by_one_raises_too_those_behind_it_are_not_taken_for_answered() -> None:
    play = SendPlay()
    play.send(message(body=b"0"))
    play.codes()
    real, tries = play.store.append, iter((RunTooLongError("together"), None, ZeroDivisionError("a bug")))

    def append(sends: list[frames.Send], *rest: bool) -> int:
        raised = next(tries)
        if raised is not None:
            raise raised
        return real(sends, *rest)

    play.store.append = append  # type: ignore[method-assign,assignment]
    runs = [[message(body=b"%d" % number)] for number in range(1, 4)]
    for run in runs:
        play.sending.send_run(play.connection, run)  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        play.sending.append_gathered()
    assert play.codes() == [0] and play.unanswered() == [*runs[1], *runs[2]]


def test_a_batch_keeps_its_place_among_single_messages() -> None:
    play = SendPlay()
    play.send(message(body=b"1"), batch_of(b"2", b"3"), message(body=b"4"))
    assert play.codes() == [0, 0, 0]
    assert play.stored("orders") == [b"1", b"2", b"3", b"4"]


def test_a_batch_is_answered_once_with_all_ids() -> None:
    play = SendPlay()
    play.send(batch_of(b"a", b"b", b"c"))
    (reply,) = play.connection.take()
    ids = reply.ext["msgId"].split(",")
    assert len(ids) == 3 and all(len(one) == 32 for one in ids) and len(set(ids)) == 3
    assert (reply.ext["queueId"], reply.ext["queueOffset"]) == ("0", "0")


def test_a_batch_with_one_bad_message_is_refused_whole() -> None:
    play = SendPlay()
    body = entry(b"good") + entry(b"bad", properties.pack({"DELAY": "2"}))
    play.send(message(body=body, batch=True))
    (reply,) = play.connection.take()
    assert reply.code == 13 and reply.remark is not None and reply.remark.startswith("message 1 of the batch")
    assert play.stored("orders") == []


def test_a_batch_that_cannot_be_read_or_is_too_long_is_refused() -> None:
    play = SendPlay(batch_messages_max=3)
    play.send(message(body=b"nonsense", batch=True), batch_of(b"1", b"2", b"3", b"4"), batch_of(topic="%RETRY%g"))
    assert play.codes() == [13, 13, 13]


def test_a_run_too_long_for_a_segment_is_refused_and_not_a_failure() -> None:
    play = SendPlay(limits=MessageLimits(1 << 20, 30_000), batch_messages_max=10_000)
    play.send(batch_of(*[b"x" * 200] * 4000))
    assert play.codes() == [13] and play.store.failed is None
    play.send(message())
    assert play.codes() == [0]


def test_a_shut_gate_refuses_everything_at_once() -> None:
    play = SendPlay()
    play.gate.shut("x", Refusal(14, "no room"))
    quiet = message()
    quiet.rpc_flag = 2
    play.send(message(), quiet, batch_of(b"a"))
    assert play.codes() == [14, 14] and play.sending.refused == {14: 3}


def test_a_full_disk_answers_each_message_of_the_run() -> None:
    play = SendPlay()
    play.send(message())
    play.fill_disk()
    play.send(message(), message(), batch_of(b"a"))
    assert sorted(play.codes()) == [0, 14, 14, 14]


def test_one_way_requests_are_never_answered() -> None:
    play = SendPlay()
    sends = [message(), message("no good!"), batch_of(b"b")]
    for send in sends:
        send.rpc_flag = 2
    play.send(*sends)
    assert play.codes() == []
    assert play.stored("orders") == [b"body", b"b"]


def test_halves_are_disguised_behind_the_plain_messages_of_a_run_and_answered_with_their_own_queue() -> None:
    play = SendPlay()
    play.send(
        message(body=b"half", pairs={"TRAN_MSG": "true", "UNIQ_KEY": "u"}, queue_id=3),
        message(body=b"plain"),
        message(body=b"old half", sys_flag=4),
    )
    answered = [(reply.ext["queueId"], reply.ext["queueOffset"]) for reply in play.connection.take()]
    assert answered == [("0", "0"), ("3", "0"), ("0", "1")]
    assert play.stored("orders") == [b"plain"] and play.stored("orders", 3) == []
    assert play.stored(names.HALF_TOPIC) == [b"half", b"old half"]


@pytest.mark.parametrize("bits", [4, 8, 12])
@pytest.mark.parametrize(
    ("topic", "times", "stands_in"),
    [
        ("%RETRY%g", 0, (names.SCHEDULE_TOPIC, 2)),
        ("%RETRY%g", 1, (names.SCHEDULE_TOPIC, 2)),
        ("%RETRY%g", 17, ("%DLQ%g", 0)),
        ("%DLQ%g", 0, ("%DLQ%g", 0)),
        ("orders", 1, (names.SCHEDULE_TOPIC, 2)),
    ],
)
def test_what_is_acknowledged_stands_in_a_queue_whatever_its_sys_flag_says(
    topic: str, times: int, stands_in: tuple[str, int], bits: int
) -> None:
    play = SendPlay()
    play.groups.ensure("g")
    pairs = {"UNIQ_KEY": "u", "TRAN_MSG": "true", "DELAY": "3", "RETRY_TOPIC": "orders"}
    play.send(message(topic, b"again", pairs, sys_flag=bits | 1, reconsume_times=times))
    assert play.codes() == [0] and play.stored(*stands_in) == [b"again"]
    (entry,) = next(iter(play.store.reader.entries(0)))
    assert entry.sys_flag == 1, "the broker alone says what was prepared, committed or rolled back"


def test_what_is_unusual_never_takes_the_short_way() -> None:
    play = SendPlay()
    play.send(message())
    assert play.codes() == [0] and "orders" in play.admission.queues
    for unusual in (
        message(pairs={"DELAY": "soon"}),
        message(sys_flag=8),
        message(queue_id=7),
        message(body=bytes(1001)),
        message(pairs={"p": "x" * 32767}),
        message(pairs={"UNIQ_KEY": "u" * 256}),
        message(pairs={"p": "\0" * 512}),
    ):
        play.send(unusual)
        assert play.codes() != [0], unusual


class _Counting(list[frames.Send]):
    """Counts how many of its messages are looked at, in slices of it too."""

    looks = 0

    def __iter__(self) -> Iterator[frames.Send]:
        for send in super().__iter__():
            _Counting.looks += 1
            yield send

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        return _Counting(found) if isinstance(at, slice) else found


def test_many_delays_that_need_a_closer_look_cost_no_more_each_than_few() -> None:
    play = SendPlay()
    play.send(message(body=b"0"))
    play.codes()
    run = [message(pairs={"UNIQ_KEY": "u", "TIMER_DELIVER_MS": "1"}) for _ in range(200)]
    play.sending._sorted = lambda sends: ([], _Counting(sends))  # type: ignore[method-assign]
    play.send(*run)
    assert play.codes() == [0] * 200 and len(play.stored("orders")) == 201
    assert _Counting.looks <= 5 * 200, "a wake-up may bring ten thousand"


def test_when_a_closer_look_at_a_delay_raises_nothing_of_its_run_is_stored() -> None:
    play = SendPlay()
    play.send(message(body=b"0"))
    play.codes()
    past = {"UNIQ_KEY": "u", "TIMER_DELIVER_MS": "1"}
    sends = [message(body=b"1"), message(pairs={"UNIQ_KEY": "u", "DELAY": "1"}), message(pairs=past)]

    def fail(send: frames.Send) -> Refusal | None:
        raise ZeroDivisionError("division by zero")

    play.delays.take = fail  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        play.send(*sends)
    assert play.unanswered() == sends
    play.sending.append_gathered()
    assert play.stored("orders") == [b"0"] and play.stored("SCHEDULE_TOPIC_XXXX") == [] and play.codes() == []
