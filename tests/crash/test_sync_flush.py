"""SYNC_FLUSH of the real process, watched at its fdatasync by a preloaded library (testkit/shim/diskshim.c).

A test that kills the process cannot tell SYNC_FLUSH from ASYNC_FLUSH, since the page cache survives.  Here the
fdatasync itself is held up, made to fail, and its end compared with the moment when the reply leaves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from gantry.leaves import frames
from testkit.diskshim import DiskShim, Event, log_range
from testkit.ledger import AckLedger, Place
from testkit.patience import HANG_S
from testkit.process import GantryProcess
from testkit.rawclient import MAX_OFFSET, RawClient

_CONFIG = {"store.flush": "SYNC_FLUSH", "messages.ack_wait_s": "60"}
_TOPIC = "orders"
_SEND_OK = 0
_FLUSH_TIMEOUT = 10


def _until(is_so: Callable[[], bool], what: str) -> None:
    """Wait for an event that only the shim's log or the broker can tell of."""
    until = time.monotonic() + HANG_S
    while not is_so():
        assert time.monotonic() < until, f"waited {HANG_S} s for {what}"
        time.sleep(0.005)


def _syncs_open(shim: DiskShim) -> int:
    events = shim.events()
    return sum(one.kind == "sync-begin" for one in events) - sum(one.kind == "sync-end" for one in events)


def _send(client: RawClient, number: int) -> int:
    return client.send(_TOPIC, 0, b"message %d" % number)


def _max_offset(client: RawClient) -> int:
    reply = client.call(MAX_OFFSET, {"topic": _TOPIC, "queueId": "0"})
    return int(reply.ext["offset"])


def test_while_fdatasync_hangs_no_send_ok_leaves_and_nobody_sees_the_message(tmp_path: Path) -> None:
    shim = DiskShim(tmp_path / "shim")
    with (
        GantryProcess(tmp_path / "data", _CONFIG, shim.environment) as process,
        RawClient(process.broker) as producer,
        RawClient(process.broker) as reader,
    ):
        _send(producer, 0)
        first = producer.reply()
        assert first is not None and first.code == _SEND_OK
        shim.control("block")
        for number in range(1, 6):
            _send(producer, number)
        _until(lambda: _syncs_open(shim) == 1, "a blocked fdatasync")
        # The broker is alive and answers others; what waits for the disk is not answered and not shown.
        assert _max_offset(reader) == 1
        assert reader.read(_TOPIC, 0) == [(0, b"message 0")]
        assert producer.reply(timeout_s=0.5) is None
        shim.control("pass")
        replies = [producer.reply() for _ in range(5)]
        assert [reply.code for reply in replies if reply is not None] == [_SEND_OK] * 5
        assert [body for _, body in reader.read(_TOPIC, 0)] == [b"message %d" % number for number in range(6)]


def test_a_send_that_waited_too_long_is_told_that_its_outcome_is_unknown(tmp_path: Path) -> None:
    shim = DiskShim(tmp_path / "shim")
    config = {**_CONFIG, "messages.ack_wait_s": "1"}
    with GantryProcess(tmp_path / "data", config, shim.environment) as process, RawClient(process.broker) as producer:
        _send(producer, 0)
        assert producer.reply() is not None
        shim.control("block")
        _send(producer, 1)
        late = producer.reply()
        assert late is not None and late.code == _FLUSH_TIMEOUT
        shim.control("pass")
        _send(producer, 2)
        after = producer.reply()
        assert after is not None and after.code == _SEND_OK


def test_a_failed_fdatasync_ends_the_process_and_the_next_start_writes_the_tail_again(tmp_path: Path) -> None:
    ledger = AckLedger()
    shim = DiskShim(tmp_path / "first")
    with GantryProcess(tmp_path / "data", _CONFIG, shim.environment) as process, RawClient(process.broker) as producer:
        for number in range(20):
            body = b"message %d" % number
            ledger.send(_TOPIC, 0, body)
            producer.send(_TOPIC, 0, body)
            reply = producer.reply()
            assert reply is not None and reply.code == _SEND_OK
            ledger.ack(body, Place(_TOPIC, 0, int(reply.ext["queueOffset"])))
        shim.control("fail")
        ledger.send(_TOPIC, 0, b"doomed")
        producer.send(_TOPIC, 0, b"doomed")
        code = process.wait()
        assert code > 0, f"ended with {code}: not by a signal, and not as if all were well"
        assert "fdatasync" in process.stderr() and "Input/output error" in process.stderr()
    assert not any(_is_send_ok(reply) for reply in _replies_after_failure(shim))
    doomed = max(log_range(event) for event in shim.events() if event.kind == "pwrite")

    again = DiskShim(tmp_path / "second")
    with GantryProcess(tmp_path / "data", _CONFIG, again.environment) as process, RawClient(process.broker) as reader:
        start = again.events()
        rewritten = [event for event in start if event.kind == "pwrite" and _covers(log_range(event), doomed)]
        assert rewritten, "the tail, whose pages the kernel takes for clean, has to be written again"
        synced = [event for event in start if event.kind == "sync-end" and event.ns > rewritten[-1].ns]
        assert synced and synced[0].failed == 0, "and to be synced before anything else is promised"
        # Outcome unknown: the doomed message may be there, as the last one.
        ledger.check({(_TOPIC, 0): reader.read(_TOPIC, 0)})


def _is_send_ok(reply: frames.Command) -> bool:
    # The name server's answers to the broker leave the same process and have code 0 too.
    return reply.code == _SEND_OK and "msgId" in reply.ext


def _covers(outer: tuple[int, int], inner: tuple[int, int]) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _replies_after_failure(shim: DiskShim) -> list[frames.Command]:
    events = shim.events()
    failed_ns = next(event.ns for event in events if event.kind == "sync-end" and event.failed)
    return [reply for ns, reply in _replies(events) if ns >= failed_ns]


def test_every_send_ok_leaves_after_an_fdatasync_that_began_after_its_write(tmp_path: Path) -> None:
    shim = DiskShim(tmp_path / "shim")
    count, clients_count = 60, 4
    with GantryProcess(tmp_path / "data", _CONFIG, shim.environment) as process:
        clients = [RawClient(process.broker) for _ in range(clients_count)]
        for number in range(count):
            for client in clients:
                _send(client, number)
        for client in clients:
            codes = [reply.code for _ in range(count) if (reply := client.reply()) is not None]
            assert codes == [_SEND_OK] * count
            client.close()
        process.stop()
    events = shim.events()
    acked = [(ns, int(reply.ext["msgId"][16:], 16)) for ns, reply in _replies(events) if _is_send_ok(reply)]
    assert len(acked) == count * clients_count
    writes = [(log_range(event), event.ns) for event in events if event.kind == "pwrite"]
    syncs = _syncs(events)
    for reply_ns, log_offset in acked:
        written_ns = min(ns for (start, end), ns in writes if start <= log_offset < end)
        assert any(written_ns <= begun and ended <= reply_ns for begun, ended in syncs), (
            f"the record at {log_offset} was acknowledged without an fdatasync between its write and its reply"
        )


def _syncs(events: list[Event]) -> list[tuple[int, int]]:
    """(begin, end) of each fdatasync of the log that succeeded."""
    open_at: dict[str, int] = {}
    found = []
    for event in events:
        if event.kind == "sync-begin":
            open_at[event.where] = event.ns
        elif event.kind == "sync-end" and not event.failed:
            found.append((open_at.pop(event.where), event.ns))
    return found


def _replies(events: list[Event]) -> Iterator[tuple[int, frames.Command]]:
    """Each response with the time at which its last byte left."""
    partial: dict[str, bytes] = {}
    for event in events:
        if event.kind != "send":
            continue
        data = partial.pop(event.where, b"") + event.payload
        used, commands = frames.decode(data, 0, len(data))
        if used < len(data):
            partial[event.where] = data[used:]
        yield from ((event.ns, one) for one in commands if isinstance(one, frames.Command) and one.is_response)
