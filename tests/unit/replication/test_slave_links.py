"""Both shells over real sockets: a master's log goes to a slave, and strangers are turned away."""
from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest

from gantry.metadata.journal import OFFSET, TOPIC, Journal
from gantry.replication.haproof import Keys
from gantry.replication.link_ends import LinkWaits
from gantry.replication.slave_links import LINKS_MAX
from gantry.wire import ha
from testkit.slavelinkplay import OFFSETS, playing
from testkit.turning import until


async def test_what_is_written_comes_over_and_is_acknowledged() -> None:
    async with playing() as play:
        play.master.log += bytes(range(256)) * 8000  # 2 MB there already, more than a buffer
        await until(lambda: play.slave.copy == play.master.log)
        play.master.log += b"and more"
        play.slave_links.wake()
        await until(lambda: play.slave.copy == play.master.log)
        await until(lambda: play.master.acks[1].held == len(play.master.log))


async def test_links_are_fed_in_every_turn_in_which_something_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    async with playing() as play:
        await until(lambda: play.connector.is_following)
        (link,) = play.slave_links._links
        fed: list[None] = []
        monkeypatch.setattr(link, "feed", lambda: fed.append(None))
        for _ in range(3):
            fed.clear()  # others feed it too
            play.slave_links.wake()
            await asyncio.sleep(0)
            assert fed


async def test_a_chunk_longer_than_the_buffer_comes_whole() -> None:
    async with playing() as play:
        play.master.chunk = lambda start, _: (memoryview(bytes(play.master.log[start:])), len(play.master.log))  # type: ignore[method-assign]
        play.master.log += b"x" * (9 << 20)
        await until(lambda: len(play.slave.copy) == 9 << 20)


async def test_changes_come_before_the_chunk_that_was_written_after_them() -> None:
    async with playing() as play:
        await until(lambda: play.connector.is_following)
        play.master.numbered.append((4, ["a topic"]))
        play.master.log += b"its first record"
        play.slave_links.wake()
        await until(lambda: bool(play.slave.copy))
        assert play.slave.changes == [(4, ["a topic"])]
        assert 1 not in play.master.acks or play.master.acks[1].held == 0, "the change is not on the disk yet"
        play.connector.kept(4)
        await until(lambda: play.master.acks[1][:3] == (16, 16, 4))


async def test_many_changes_take_several_turns_and_records_wait_for_all_of_them() -> None:
    async with playing() as play:
        await until(lambda: play.connector.is_following)
        play.master.numbered += [(number, ["a group"]) for number in range(1, 100)]
        play.master.log += b"a record"
        (link,) = play.slave_links._links
        link.feed()
        told = link._machine.metadata
        assert told < 10, "others have the loop after a few"
        link.feed()
        assert link._machine.metadata == told, "also when it is woken meanwhile"
        play.master.numbered.append((100, ["the topic of the next record"]))
        play.master.log += b", the next"
        await until(lambda: len(play.slave.copy) == len(play.master.log))
        assert [number for number, _ in play.slave.changes] == list(range(1, 101))


async def test_records_are_sent_while_offsets_change_without_end() -> None:
    async with playing() as play:
        play.master.log += b"a first record"
        await until(lambda: play.slave.copy == play.master.log)  # the first pass, of everything, is over

        def without_end(after: int) -> Iterator[tuple[int, list[object]]]:
            return ((number, OFFSETS) for number in count(after + 1))

        play.master.changes = without_end  # type: ignore[method-assign]
        for number in range(1, 4):
            play.master.log += b"a record"
            play.slave_links.wake()
            told = len(play.slave.changes)
            await until(lambda told=told: play.slave.copy == play.master.log or len(play.slave.changes) > told + 300)  # type: ignore[misc]
            assert play.slave.copy == play.master.log
            assert len(play.slave.changes) > number, "offsets are sent as well"


async def test_a_record_waits_for_its_topic_among_offsets_that_change_without_end() -> None:
    async with playing() as play:
        play.master.log += b"a first record"
        await until(lambda: play.slave.copy == play.master.log)  # the first pass, of everything, is over
        before = len(play.master.log)
        play.master.numbered += [(number, OFFSETS) for number in range(1, 30)]
        play.master.numbered.append((30, ["the topic of the record"]))
        (link,) = play.slave_links._links
        link.feed()
        play.master.log += b"a record"
        link.feed()
        assert link._machine.position == before and link._machine.metadata < 30
        await until(lambda: len(play.slave.copy) == len(play.master.log))
        assert play.slave.changes[-1][0] >= 30


async def test_a_topic_that_changes_again_while_offsets_are_sent_is_at_a_slave_before_its_records_and_number() -> None:
    async with playing() as play:
        play.master.log += b"a first record"
        await until(lambda: play.slave.copy == play.master.log)  # the first pass, of everything, is over
        topics: dict[str, object] = {}
        offsets: dict[str, object] = {f"t@g{number}": number for number in range(3000)}
        journal = Journal()
        journal.carry(TOPIC, (), topics.get)
        journal.carry(OFFSET, list(offsets)[:1500], offsets.get)
        topics["new"] = 4
        journal.changed(TOPIC, "new")
        made = journal.number
        for key in list(offsets)[1500:]:
            journal.changed(OFFSET, key)
        arrived: list[str] = []
        append, apply = play.slave.append, play.slave.apply

        def append_noted(start: int, records: memoryview) -> int:
            arrived.append("a record")
            return append(start, records)

        def apply_noted(number: int, changes: list[object]) -> None:
            apply(number, changes)
            arrived.extend("the topic" for change in changes if change == [TOPIC, "new", 8])
            if number >= made:
                arrived.append("its number")

        play.slave.append, play.slave.apply = append_noted, apply_noted  # type: ignore[method-assign]
        play.master.changes, play.master.needed_by = journal.after, lambda: journal.needed  # type: ignore[method-assign]
        play.master.log += b"a record"
        (link,) = play.slave_links._links
        link.feed()
        assert link._changes is not None, "the pass takes several turns"
        topics["new"] = 8
        for table, key in ((TOPIC, "new"), *((OFFSET, key) for key in offsets)):
            journal.changed(table, key)
        await until(lambda: "a record" in arrived and "its number" in arrived)
        assert arrived[0] == "the topic"


async def test_topics_that_are_made_without_end_hold_no_record_that_was_written_before_them() -> None:
    async with playing() as play:
        await until(lambda: play.connector.is_following)
        play.master.log += b"a record"

        def as_many_again(after: int) -> Iterator[tuple[int, list[object]]]:
            play.master.numbered = [(after + number, ["a topic"]) for number in range(1, 9)]
            yield from play.master.numbered[:-1]

        play.master.changes = as_many_again  # type: ignore[method-assign]
        play.slave_links.wake()
        await until(lambda: play.slave.copy == b"a record")


async def test_a_new_slave_has_all_metadata_before_the_first_record() -> None:
    async with playing() as play:
        play.master.numbered += [(1, ["a topic"]), *((number, OFFSETS) for number in range(2, 40))]
        play.master.log += b"a record"
        await until(lambda: bool(play.slave.copy))
        assert len(play.slave.changes) == 39


async def test_a_confirmed_mark_travels_without_a_chunk() -> None:
    async with playing() as play:
        play.master.log += b"record"
        await until(lambda: len(play.slave.copy) == 6)
        play.master.confirmed = 6
        play.slave_links.tick()
        await until(lambda: play.slave.confirmed == 6)


async def test_a_busy_link_has_its_beats_as_well_since_only_their_answer_is_a_slaves_word() -> None:
    async with playing() as play:
        play.slave_links.rules = replace(play.slave_links.rules, beat_s=0.4)
        play.slave_links.tick()
        for number in range(1, 4):
            before = play.master.acks[1].echo if 1 in play.master.acks else 0
            for _ in range(5):
                play.clock.by_s += 0.1
                play.master.log += b"record"
                play.slave_links.wake()
                await until(lambda: len(play.slave.copy) == len(play.master.log))
                play.slave_links.tick()
            await until(lambda before=before: play.master.acks[1].echo > before)  # type: ignore[misc]
            assert play.master.acks[1].echo >= 1e9 * (play.clock.monotonic() - 5), number


async def accept_and_say_nothing() -> tuple[asyncio.Server, str]:
    """A master that stands still: the system takes connections for it."""

    async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(taken, "127.0.0.1", 0)
    return server, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_master_that_takes_connections_and_never_answers_is_given_up_when_another_is_named() -> None:
    async with playing() as play:
        await until(lambda: play.connector.is_following)
        real, (server, play.slave.address) = play.slave.address, await accept_and_say_nothing()
        former = play.connector.link
        assert former is not None
        former.end("the test begins")
        await until(lambda: play.connector.link not in (None, former))
        assert not play.connector.is_following
        play.slave.address = real
        play.connector.hurry()
        await until(lambda: play.connector.is_following)
        server.close()
        await server.wait_closed()
        assert any("another master is named" in line for line in play.said)


async def test_a_connection_that_is_never_made_is_given_up_when_another_master_is_named() -> None:
    async with playing() as play:
        await until(lambda: play.connector.is_following)
        loop, real = asyncio.get_running_loop(), play.slave.address
        connect, tried = loop.create_connection, asyncio.Event()

        async def never(make: object, host: str, port: int) -> object:
            if port != 9:
                return await connect(make, host, port)  # type: ignore[arg-type, call-overload]
            tried.set()
            return await asyncio.Event().wait()

        loop.create_connection = never  # type: ignore[method-assign, assignment]
        play.slave.address = "127.0.0.1:9"
        assert play.connector.link is not None
        play.connector.link.end("the test begins")
        await tried.wait()
        play.slave.address = real
        play.connector.hurry()
        await until(lambda: play.connector.is_following)
        assert not any("no answer" in line for line in play.said)


async def test_what_is_cold_is_brought_in_first() -> None:
    async with playing() as play:
        play.master.warm_from = 5 << 20
        play.master.log += bytes(6 << 20)
        await until(lambda: len(play.slave.copy) == 6 << 20)
        assert play.master.brought == [0, 2 << 20, 4 << 20], "several chunks at once, and nothing that is warm"


async def test_a_slave_whose_disk_fails_ends_its_link_and_comes_again() -> None:
    async with playing() as play:
        await until(lambda: play.connector.is_following)
        play.slave.fails = True
        play.master.log += b"record"
        play.slave_links.wake()
        await until(lambda: bool(play.master.gone))
        assert play.master.gone == [(1, False)] and not play.slave.copy
        play.slave.fails = False
        await until(lambda: len(play.slave.copy) == 6)


async def test_links_that_fail_one_after_the_other_come_ever_later_and_one_that_works_ends_that() -> None:
    async with playing() as play:
        connector = play.connector
        connector.waits = LinkWaits(0.001, 0.002)
        await until(lambda: connector.is_following)
        play.slave.fails = True
        play.master.log += b"record"
        play.slave_links.wake()
        await until(lambda: connector.pause_s > 0.03)
        await until(lambda: len(play.master.gone) >= 6)  # doubled each time
        connector.hurry()  # the register names the same master as before
        play.slave.fails = False
        await until(lambda: len(play.slave.copy) == 6)
        failing = connector.link
        assert failing is not None
        failing.end("for this test")
        await until(lambda: connector.is_following and connector.link is not failing)
        assert connector.pause_s == 0.001


async def test_a_master_that_cannot_be_reached_after_a_short_link_is_looked_for_as_often_as_any_other() -> None:
    async with playing() as play:
        connector = play.connector
        connector.waits = LinkWaits(0.001, 0.002)
        await until(lambda: connector.is_following)
        await play.slave_links.close()
        await until(lambda: sum("cannot be reached" in line for line in play.said) >= 8)
        assert connector.pause_s == 0.002, "it had doubled each time"


async def test_a_slave_without_room_hears_where_the_masters_log_begins_or_it_would_never_have_any() -> None:
    async with playing() as play:
        await until(lambda: play.connector.is_following)
        play.slave.is_full, play.slave.log_start = True, -1
        play.master.log += b"record"
        play.slave_links.wake()
        await until(lambda: bool(play.master.gone))
        assert play.slave.log_start == 0 and not play.slave.copy
        play.slave.is_full = False
        await until(lambda: len(play.slave.copy) == 6)


async def test_a_slave_that_leaves_says_so() -> None:
    async with playing() as play:
        await until(lambda: play.connector.is_following)
        assert play.connector.link is not None
        play.connector.link.leave()
        await until(lambda: play.master.gone == [(1, True)])


async def test_offsets_committed_on_the_slave_go_to_the_master() -> None:
    async with playing() as play:
        await until(lambda: play.connector.is_following)
        assert play.connector.link is not None and play.connector.link.commit(b"[]")
        await until(lambda: play.master.committed == [b"[]"])


async def test_a_wrong_secret_is_said_on_the_slave_and_nothing_comes_over() -> None:
    async with playing(Keys(b"not the secret at all")) as play:
        play.master.log += b"record"
        await until(lambda: any("does not know our secret" in line for line in play.said))
        assert not play.slave.copy


async def test_a_slave_finds_a_place_however_many_connections_are_silent() -> None:
    async with playing() as play:
        silent = [await asyncio.open_connection("127.0.0.1", play.slave_links.port) for _ in range(2 * LINKS_MAX)]
        for reader, writer in silent[:LINKS_MAX]:
            assert await reader.read() == b""  # the oldest gave way
            writer.close()
        play.master.log += b"record"
        play.slave_links.wake()
        await until(lambda: play.slave.copy == play.master.log)
        for _, writer in silent[LINKS_MAX:]:
            writer.close()


async def test_a_peer_without_manners_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "gantry.replication")

    async def ended(port: int, data: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        answer = await reader.read()
        writer.close()
        return answer

    async with playing() as play:
        port = play.slave_links.port
        assert await ended(port, (4711).to_bytes(8, "big")) == b""
        assert await ended(port, b"GET / HTTP/1.1\r\n\r\n") == b""
        head = ha.MAGIC + bytes(32)
        assert len(await ended(port, head + b"\xff\xff\xff\xff\x02")) == 5 + 64
        assert len(await ended(port, head + b"\0\0\0\0\x02")) == 5 + 64
        assert len(await ended(port, head + ha.frame(ha.FrameType.HELLO, bytes(32) + b"{}"))) == 5 + 64
        await until(lambda: not play.slave_links.ending)
    assert "RocketMQ slave" in caplog.text and "does not speak this protocol" in caplog.text
    assert "a frame claims 4294967295 bytes" in caplog.text and "does not know the secret" in caplog.text


async def test_a_link_whose_way_was_full_goes_on_when_it_has_room() -> None:
    async with playing() as play:
        await until(lambda: play.connector.is_following)
        (link,) = play.slave_links._links
        link.pause_writing()
        play.master.log += b"record"
        play.slave_links.wake()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not play.slave.copy
        link.resume_writing()
        await until(lambda: play.slave.copy == b"record")
