"""Segments that go although something in them is still owed: carried on first, exactly once, on full disks too."""

from __future__ import annotations

import pytest

from gantry.errors import DiskFullError
from gantry.store.store import Store
from testkit.delayplay import DelayPlay
from testkit.keyed import query
from testkit.simclock import SimClock
from testkit.simdisk import SimDisk
from testkit.smallstore import bodies, crash, message, opened, small
from testkit.transactionplay import COMMIT, ROLLBACK, TransactionPlay

_SEGMENT = 1 << 14
_HOUR_MS = 3_600_000


def _with_old_halves(count: int) -> tuple[TransactionPlay, list[str]]:
    """Open halves in the first segment of several, all old enough to go."""
    play = TransactionPlay(segment_bytes=_SEGMENT, reserved_ms=_HOUR_MS)
    keys = [f"old{number}" for number in range(count)]
    for key in keys:
        assert play.half(key=key).code == 0
    for _ in range(60):
        play.end(play.half(b"." * 900), COMMIT)
    play.clock.advance(_HOUR_MS + 1)
    return play, keys


def test_halves_are_carried_on_once_and_end_once_under_their_first_place() -> None:
    play = TransactionPlay(segment_bytes=_SEGMENT, reserved_ms=_HOUR_MS)
    paid, unpaid = play.half(b"paid", key="paid"), play.half(b"unpaid", key="unpaid")
    for _ in range(60):
        play.end(play.half(b"." * 900), COMMIT)
    play.clock.advance(_HOUR_MS + 1)
    play.retain()
    assert play.store.stats().log_start >= _SEGMENT
    assert play.service.counts.put_back == 2, "each is copied once"
    assert {half.root for half in play.service.book.open.values()} == {paid.queue_offset, unpaid.queue_offset}
    play.save()
    play.reopen()
    assert play.end(paid, COMMIT) == play.end(paid._replace(queue_offset=paid.queue_offset), COMMIT) == 0
    assert play.end(unpaid, ROLLBACK) == 0
    assert [key for _, key in play.visible()].count("paid") == 1
    assert "unpaid" not in [key for _, key in play.visible()] and not play.service.book.open


def test_where_a_half_was_carried_from_nobody_ends_it_without_its_key() -> None:
    play, _ = _with_old_halves(1)
    play.retain()
    (half,) = play.service.book.open.values()
    (question,) = play.run_pass(0) or [None]
    first = play.half(key="other")._replace(queue_offset=half.root, log_offset=0)
    assert play.end(first, COMMIT) == 1 and half.root in [one.root for one in play.service.book.open.values()]
    assert question is None or question.half.queue_offset == half.current


def test_a_disk_that_is_too_full_for_producers_takes_what_is_owed_and_gets_its_room_back() -> None:
    play, _ = _with_old_halves(5)
    play.store.retention.seen = play.store.retention.seen._replace(used=3.0)
    assert play.half().code == 14
    play.retain()
    assert play.service.counts.put_back == 5 and play.service.counts.stuck == 0
    assert play.store.stats().log_start >= _SEGMENT


def test_what_finds_no_room_is_named_and_keeps_its_segment_until_there_is_room() -> None:
    play, _ = _with_old_halves(70)
    roots = list(play.service.book.open)
    play.store.append, append = _no_room, play.store.append  # type: ignore[method-assign]
    play.retain()
    assert play.store.stats().log_start == 0 and play.service.counts.stuck == 70
    assert play.store.retention.waiting > 0
    said = " ".join(text for text in play.said if "cannot be copied" in text)
    named = {int(root) for text in said.split(": ")[1:] for root in text.replace(",", " ").split() if root.isdigit()}
    assert set(roots) <= named
    play.store.append = append  # type: ignore[method-assign]
    play.gate.reopen("disk full")
    play.retain()
    assert play.service.counts.stuck == 0 and play.store.stats().log_start >= _SEGMENT
    assert len(play.service.book.open) == 70


def _no_room(*_: object, **__: object) -> int:
    raise DiskFullError("no room")


def test_delayed_messages_are_carried_on_and_delivered_once() -> None:
    play = DelayPlay(segment_bytes=_SEGMENT, reserved_ms=_HOUR_MS)
    play.send(b"level", DELAY="18")
    play.send(b"time", TIMER_DELAY_SEC=str(2 * 3600))
    for _ in range(60):
        play.send(b"." * 900)
    play.clock.advance(_HOUR_MS + 1)
    play.store.retention.drop_expired()
    play.pass_ms(30_000)
    assert play.store.stats().log_start >= _SEGMENT and play.service.counts.carried == 2
    play.reopen()
    play.pass_ms(1000)
    assert not {b"level", b"time"} & set(play.visible())
    play.clock.advance(_HOUR_MS)
    play.pass_ms(2000)
    assert sorted(body for body in play.visible() if body != b"." * 900) == [b"level", b"time"]


def test_delayed_messages_without_room_are_named_and_stay() -> None:
    play = DelayPlay(segment_bytes=_SEGMENT, reserved_ms=_HOUR_MS)
    for number in range(3):
        play.send(b"%d" % number, TIMER_DELAY_SEC=str(2 * 3600 + number))
    for _ in range(60):
        play.send(b"." * 900)
    play.clock.advance(_HOUR_MS + 1)
    play.store.append, append = _no_room, play.store.append  # type: ignore[method-assign]
    play.store.retention.drop_expired()
    play.pass_ms(20_000)
    assert play.service.counts.stuck == 3 and play.store.stats().log_start == 0
    assert any("gantry delay cancel" in text for text in play.said)
    play.store.append = append  # type: ignore[method-assign]
    play.pass_ms(20_000)
    assert play.service.counts.stuck == 0 and play.service.counts.carried == 3
    assert play.store.stats().log_start >= _SEGMENT


def _filled(clock: SimClock, disk: SimDisk, **changes: object) -> Store:
    disk.now_ms = clock.now_ms
    store = opened(small("/s", reserved_ms=_HOUR_MS, **changes), clock, disk=disk)  # type: ignore[arg-type]
    for number in range(70):
        store.append([message(body=b"%d" % number + b"." * 900, keys="k")])
    _ticks(store, clock, 3)
    return store


def _ticks(store: Store, clock: SimClock, count: int) -> None:
    for _ in range(count):
        clock.advance(11_000)
        for _ in store.tick(clock.now_ms()):
            pass


def test_a_disk_without_a_single_free_byte_makes_room_by_itself() -> None:
    clock, disk = SimClock(), SimDisk(quota_bytes=10 << 20)
    store = _filled(clock, disk)
    clock.advance(_HOUR_MS)
    # Somebody else's file takes all that is left.
    disk.quota_bytes = disk.usage("/s")[0] - disk.usage("/s")[1]
    with pytest.raises(DiskFullError):
        for _ in range(60):
            store.append([message(body=b"." * 900)])
            _ticks(store, clock, 1)
    store.retention.drop_expired()
    _ticks(store, clock, 30)
    assert store.stats().log_start > 0, "nothing could be deleted, for want of room to say what"
    store.append([message(body=b"there is room again")])
    assert bodies(store)[-1] == b"there is room again" and store.failed is None
    ends = store.queue_range("orders", 0)
    store.close()
    again = opened(store.settings, clock, disk=disk.restart())  # type: ignore[arg-type]
    assert again.queue_range("orders", 0) == ends and again.report.rebuilt == []


@pytest.mark.parametrize("stop", ["close", "crash"])
def test_a_disk_that_is_full_just_when_a_new_index_file_is_wanted_makes_room_by_itself(stop: str) -> None:
    """It is larger than the reserve: without anybody's help only a segment that goes makes room for it."""
    clock, disk = SimClock(), SimDisk(quota_bytes=10 << 20)
    operation = disk.operation

    def failing(kind: str, path: str, *rest: object) -> object:
        if path == "/s/gantry/index.new" and kind != "unlink" and disk.exists(f"/s/commitlog/{0:020d}"):
            raise DiskFullError(f"{kind} {path}: no room")
        return operation(kind, path, *rest)  # type: ignore[arg-type]

    disk.operation = failing  # type: ignore[assignment, method-assign]
    # No checkpoint comes after the first messages: what the table says of queues is as old as the store.
    store = _filled(clock, disk)
    with pytest.raises(DiskFullError, match="no room for queue and index files"):
        store.append([message(body=b"refused")])
    before = bodies(store)
    clock.advance(_HOUR_MS)
    store.retention.drop_expired()
    _ticks(store, clock, 1)
    _ticks(store, clock, 60)
    assert store.stats().log_start > 0 and store.failed is None
    store.append([message(body=b"there is room again", keys="new")])
    ends = store.queue_range("orders", 0)
    kept = bodies(store)
    assert ends is not None and kept == [*before[ends[0] :], b"there is room again"]
    if stop == "close":
        store.close()
    else:
        crash(store)
    again = opened(store.settings, clock, disk=disk.restart())  # type: ignore[arg-type]
    assert again.queue_range("orders", 0) == ends and bodies(again) == kept
    assert len(query(again.reader, "orders", "new", 10, 0, clock.now_ms() + 1000)) == 1


@pytest.mark.parametrize("part", ["/consumequeue", "/index", "/gantry", "/checkpoint"])
def test_no_room_for_what_is_derived_refuses_and_recovers(part: str) -> None:
    clock, disk = SimClock(), SimDisk(quota_bytes=10 << 20)
    store = _filled(clock, disk)
    full = True
    operation = disk.operation

    def failing(kind: str, path: str, *rest: object) -> object:
        if full and kind in ("write", "create", "allocate") and path.startswith(f"/s{part}"):
            raise DiskFullError(f"{kind} {path}: no room")
        return operation(kind, path, *rest)  # type: ignore[arg-type]

    disk.operation = failing  # type: ignore[assignment, method-assign]
    store.append([message(body=b"taken", keys="k")])
    _ticks(store, clock, 3)
    with pytest.raises(DiskFullError, match="no room for queue and index files"):
        store.append([message(body=b"refused")])
    assert bodies(store)[-1] == b"taken", "reading goes on"
    full = False
    _ticks(store, clock, 3)
    store.append([message(body=b"again")])
    store.close()
    again = opened(store.settings, clock, disk=disk.restart())  # type: ignore[arg-type]
    assert bodies(again)[-2:] == [b"taken", b"again"] and again.report.rebuilt == []


def test_what_has_to_be_written_before_a_segment_goes_gets_the_room_of_the_reserve() -> None:
    clock, disk = SimClock(), SimDisk(quota_bytes=10 << 20)
    store = _filled(clock, disk)
    clock.advance(_HOUR_MS)
    operation = disk.operation

    def failing(kind: str, path: str, *rest: object) -> object:
        is_base = path.startswith("/s/gantry/queues.json") and kind in ("create", "write")
        if is_base and disk.exists("/s/gantry/reserve"):
            raise DiskFullError(f"{kind} {path}: no room but that of the reserve")
        return operation(kind, path, *rest)  # type: ignore[arg-type]

    disk.operation = failing  # type: ignore[assignment, method-assign]
    store.retention.drop_expired()
    _ticks(store, clock, 20)
    assert store.stats().log_start > 0 and store.failed is None
    store.append([message(body=b"goes on")])
