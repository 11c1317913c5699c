"""Which handle of a message is valid."""

import random

import pytest

from gantry.pop import book as book_module
from gantry.pop.book import LeaseBook, Verdict
from gantry.pop.records import LeaseKey, LeaseRecord

QUEUE = ("g", "orders", 0)


def record(start: int, pop_ms: int, *offsets: int, end_ms: int = 0) -> LeaseRecord:
    return LeaseRecord(LeaseKey(*QUEUE, start, pop_ms), end_ms or pop_ms + 1000, offsets or (start,))


def verdict(book: LeaseBook, start: int, pop_ms: int, offset: int, now_ms: int = 0) -> Verdict:
    return book.verdict(LeaseKey(*QUEUE, start, pop_ms), offset, pop_ms + 1000, now_ms or pop_ms)


def test_a_message_is_open_until_it_is_closed() -> None:
    book = LeaseBook(100, 100)
    lease = book.add(record(10, 500, 10, 11, 13), 0)
    assert lease is not None and book.open == 3
    assert verdict(book, 10, 500, 11) is Verdict.OPEN
    assert book.close(lease, [11, 12, 13]) == [11, 13]
    assert verdict(book, 10, 500, 11) is Verdict.DONE
    assert verdict(book, 10, 500, 10) is Verdict.OPEN
    assert book.close(lease, [10, 11]) == [10]
    assert (book.open, book.leases, list(book.queues())) == (0, 0, [])


def test_a_newer_lease_of_a_message_makes_the_older_handle_stale() -> None:
    for order in (0, 1):
        book = LeaseBook(100, 100)
        both = [record(10, 500, 10, 11, 12), record(11, 501, end_ms=9000)]
        for one in reversed(both) if order else both:
            book.add(one, 0)
        assert verdict(book, 10, 500, 11) is Verdict.STALE
        assert verdict(book, 11, 501, 11) is Verdict.OPEN
        assert verdict(book, 10, 500, 12) is Verdict.OPEN
        assert book.open == 3


def test_what_a_newer_lease_takes_is_named_before() -> None:
    book = LeaseBook(100, 100)
    book.add(record(10, 500, 10, 11, 12), 0)
    found = book.overlaps(QUEUE, [11, 12, 13])
    assert [(lease.key.start, offsets) for lease, offsets in found] == [(10, [11, 12])]
    assert book.overlaps(QUEUE, [13, 14]) == []


def test_the_pop_time_of_a_message_only_grows() -> None:
    book = LeaseBook(100, 100)
    book.add(record(10, 500, 10, 11), 0)
    assert book.pop_ms(QUEUE, 12, 400) == 400
    assert book.pop_ms(QUEUE, 11, 400) == 501
    assert book.pop_ms(QUEUE, 11, 900) == 900


def test_the_pop_time_of_a_message_grows_when_its_lease_has_ended() -> None:
    book = LeaseBook(100, 100)
    lease = book.add(record(10, 500, 10, 11), 0)
    assert lease is not None
    book.end(lease)
    book.leased(record(12, 600, 12))
    assert book.pop_ms(QUEUE, 10, 400) == 601
    assert book.pop_ms(QUEUE, 13, 400) == 400
    book.forget(lambda group, topic, queue_id: (group, topic, queue_id) == QUEUE)
    assert book.pop_ms(QUEUE, 10, 400) == 400


def test_an_ended_lease_is_forgotten_and_its_handles_are_stale() -> None:
    book = LeaseBook(100, 100)
    lease = book.add(record(10, 500), 0)
    assert lease is not None
    book.end(lease)
    book.end(lease)
    assert verdict(book, 10, 500, 10, now_ms=1500) is Verdict.STALE
    assert (book.open, book.leases) == (0, 0)


def test_a_renewed_lease_keeps_its_handles() -> None:
    book = LeaseBook(100, 100)
    lease = book.add(record(10, 500, 10, 11), 0)
    assert book.add(record(10, 500, 11, end_ms=9000), 0) is lease
    assert lease is not None and lease.end_ms == 9000
    assert verdict(book, 10, 500, 11) is Verdict.OPEN


def test_the_number_of_open_messages_is_bounded() -> None:
    book = LeaseBook(3, 4)
    book.add(record(10, 500, 10, 11), 0)
    assert book.room(QUEUE) == 1
    assert book.room(("g", "other", 0)) == 2
    assert book.room(("g", "other", 0)) == 2


def test_leases_of_a_deleted_topic_are_forgotten() -> None:
    book = LeaseBook(100, 100)
    book.add(record(10, 500, 10, 11), 0)
    assert book.forget(lambda group, topic, queue_id: topic == "other") == 0
    assert book.forget(lambda group, topic, queue_id: topic == "orders") == 2
    assert (book.open, book.leases) == (0, 0)


def test_a_lease_that_takes_the_last_message_of_another_is_there() -> None:
    for order in (0, 1):
        book = LeaseBook(100, 100)
        both = [record(10, 500), record(10, 501)]
        for one in reversed(both) if order else both:
            book.add(one, 0)
        assert verdict(book, 10, 501, 10) is Verdict.OPEN
        assert (book.open, book.leases, book.open_in(QUEUE)) == (1, 1, 1)


def test_the_number_of_moved_messages_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book_module, "MOVED_MAX", 3)
    book = LeaseBook(100, 100)
    key = LeaseKey(*QUEUE, 10, 500)
    for offset in range(10, 14):
        book.moved(key, [offset], 1500, 600)
    assert [verdict(book, 10, 500, offset) for offset in (10, 11, 13)] == [Verdict.DONE, Verdict.STALE, Verdict.STALE]
    book.moved(key, [14], 3000, 2000)  # the others have ended
    assert len(book._moved) == 1


def test_a_handle_that_is_not_valid_and_a_new_lease_look_at_their_own_messages_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    book = LeaseBook(1_000, 1_000)
    for offset in range(300):
        book.add(record(offset, 500 + offset), 0)
    gone = book.find(LeaseKey(*QUEUE, 7, 507))
    assert gone is not None
    book.close(gone, [7])
    verdict(book, 7, 507, 7)
    looked: list[int] = []
    offsets_of = book_module.OpenLease.offsets_of

    def counted(lease: book_module.OpenLease, bits: int) -> list[int]:
        looked.append(lease.key.start)
        return offsets_of(lease, bits)

    monkeypatch.setattr(book_module.OpenLease, "offsets_of", counted)
    assert verdict(book, 7, 507, 7) is Verdict.DONE
    assert verdict(book, 8, 400, 8) is Verdict.STALE
    book.add(record(9, 2_000), 0)
    assert verdict(book, 9, 509, 9) is Verdict.STALE and verdict(book, 9, 2_000, 9) is Verdict.OPEN
    assert set(looked) <= {9}, "a walk over all leases of a queue for each request stops the broker"


def test_who_has_a_message_is_known_after_any_changes() -> None:
    chance = random.Random(20)
    for _ in range(40):
        book = LeaseBook(1_000, 1_000)
        for step in range(60):
            leases = list(book.all())
            if leases and chance.random() < 0.4:
                lease = chance.choice(leases)
                few = chance.sample(lease.offsets, chance.randint(1, len(lease.offsets)))
                book.end(lease) if chance.random() < 0.3 else book.close(lease, sorted(few))
            else:
                offsets = sorted(chance.sample(range(30), chance.randint(1, 6)))
                book.add(record(offsets[0], chance.randrange(500, 600), *offsets), 0)
            wanted = sorted(chance.sample(range(30), 5))
            shared = {one.key: [at for at in one.open_offsets() if at in wanted] for one in book.all()}
            found = {one.key: sorted(common) for one, common in book.overlaps(QUEUE, wanted)}
            assert found == {key: common for key, common in shared.items() if common}, step


def test_every_way_out_takes_the_lease_from_the_count() -> None:
    ways = {"close": 0, "end": 0, "forget": 0, "another lease": 1}
    for way, left in ways.items():
        book = LeaseBook(100, 100)
        lease = book.add(record(10, 500), 0)
        assert lease is not None and (book.leases, book.open) == (1, 1)
        if way == "close":
            book.close(lease, [10])
        elif way == "end":
            book.end(lease)
        elif way == "forget":
            book.forget(lambda group, topic, queue_id: True)
        else:
            book.add(record(10, 501), 0)
        assert (book.leases, book.open) == (left, left), way
