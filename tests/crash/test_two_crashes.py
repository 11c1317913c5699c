"""What a start corrects is durable before it serves: after a second crash, seconds later, the next start knows it too.

The first crash takes messages that saved positions count.  The start sets the positions back, and the broker stores
new messages under SYNC_FLUSH until the numbers pass what the files said.  Then the power goes again, before any of the
periodic saves: their periods are an hour here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest

from gantry.broker.broker import Broker
from gantry.broker.machine import Machine
from gantry.errors import StoreError
from gantry.model import names
from gantry.store import filenames, recoverypoint, statefile
from gantry.store.background import InlineBackground
from gantry.store.disk import Disk
from gantry.wire.codes import RequestCode
from testkit.brokerplay import Peer, bodies, configuration, peer, pull, send
from testkit.requests import request
from testkit.simdisk import SimDisk

OFFSET = {"consumerGroup": "readers", "topic": "orders", "queueId": 0}
LEVEL = 18  # two hours: nothing of it is delivered here
Play = Callable[[Broker, Peer], Awaitable[None]]


def _one_life(disk: Disk, play: Play, **changes: object) -> None:
    """A broker on this disk; what it writes as it stops is of no interest, since the power went before."""

    async def live() -> None:
        config = configuration(Path("/broker"), store__flush="SYNC_FLUSH", clients__offsets_save_s=3600, **changes)
        machine = Machine(disk=disk, background=lambda disk: InlineBackground())
        broker = Broker(config, machine=machine)
        try:
            await broker.start()
            async with peer(broker) as client:
                await play(broker, client)
        finally:
            await broker.stop()

    asyncio.run(live())


def _root() -> str:
    return configuration(Path("/broker")).store.root


def _write(disk: SimDisk, name: str, document: dict[str, object]) -> None:
    statefile.replace(disk, filenames.config(_root(), name), statefile.to_bytes(document))


def _two_crashes(prepare: Callable[[SimDisk], None], between: Play, found: Play) -> None:
    """A folder as the first crash left it; the life that the second one ends; and what the one after it finds."""
    first = SimDisk()

    async def nothing(broker: Broker, client: Peer) -> None:
        """Make the folder."""

    _one_life(first, nothing)
    prepare(first)
    first.open(filenames.abort(_root()), create=True).close()
    first.sync_all()
    seconds: list[SimDisk] = []

    async def until_the_power_goes(broker: Broker, client: Peer) -> None:
        await between(broker, client)
        seconds.extend([second.crash(), second.crash(Random(1))])

    second = first.crash()
    _one_life(second, until_the_power_goes)
    for third in seconds:
        _one_life(third, found)


def test_a_group_that_was_set_back_after_a_crash_does_not_skip_anything_after_the_next() -> None:
    def prepare(disk: SimDisk) -> None:
        _write(disk, "consumerOffset.json", {"offsetTable": {"orders@readers": {"0": 5}}})

    async def between(broker: Broker, client: Peer) -> None:
        for number in range(8):
            assert (await client.call(send("orders", b"%d" % number))).code == 0

    async def found(broker: Broker, client: Peer) -> None:
        answer = await client.call(request(RequestCode.QUERY_CONSUMER_OFFSET, **OFFSET))
        assert answer.ext["offset"] == "0"
        assert bodies(await client.call(pull("orders", 0))) == [b"%d" % number for number in range(8)]

    _two_crashes(prepare, between, found)


@pytest.mark.parametrize("is_room_in_the_reserve", [True, False])
def test_a_group_that_was_set_back_on_a_full_disk_skips_nothing_after_the_next_crash(
    is_room_in_the_reserve: bool,
) -> None:
    others = {"orders@" + "x" * (100_000 if is_room_in_the_reserve else 4_000_000): {"0": 0}}

    async def nothing(broker: Broker, client: Peer) -> None:
        """Make the folder."""

    first = SimDisk()
    _one_life(first, nothing)
    _write(first, "consumerOffset.json", {"offsetTable": {"orders@readers": {"0": 5}, **others}})
    first.open(filenames.abort(_root()), create=True).close()
    first.sync_all()
    second = first.crash()
    second.quota_bytes = second._used_bytes() + (16 << 10)
    thirds: list[SimDisk] = []
    taken: list[bytes] = []

    async def until_the_power_goes(broker: Broker, client: Peer) -> None:
        for number in range(8):
            answer = await client.call(send("orders", b"%d" % number))
            taken.extend([b"%d" % number] if answer.code == 0 else [])
        thirds.extend([second.crash(), second.crash(Random(1))])

    async def found(broker: Broker, client: Peer) -> None:
        if taken:
            answer = await client.call(request(RequestCode.QUERY_CONSUMER_OFFSET, **OFFSET))
            assert answer.ext["offset"] == "0"
            assert bodies(await client.call(pull("orders", 0))) == taken

    _one_life(second, until_the_power_goes)
    assert bool(taken) is is_room_in_the_reserve
    for third in thirds:
        third.quota_bytes = 1 << 50
        _one_life(third, found)


def test_delayed_messages_that_a_document_took_for_delivered_are_owed_after_the_next_crash_too() -> None:
    def prepare(disk: SimDisk) -> None:
        timer = {"end": 3, "first": 3, "done": [], "log": 1 << 20}
        _write(disk, "delayOffset.json", {"offsetTable": {str(LEVEL): 5}, "timer": timer})

    async def between(broker: Broker, client: Peer) -> None:
        for number in range(8):
            assert (await client.call(send("orders", b"%d" % number, pairs={"DELAY": str(LEVEL)}))).code == 0

    async def found(broker: Broker, client: Peer) -> None:
        assert broker.parts is not None
        line = broker.parts.delays.book.lines[LEVEL]
        assert (line.next, line.end) == (0, 8)

    _two_crashes(prepare, between, found)


def test_halves_behind_a_position_that_was_set_back_are_open_after_the_next_crash_too() -> None:
    def prepare(disk: SimDisk) -> None:
        key = f"{names.HALF_TOPIC}@{names.TRANSACTION_GROUP}"
        _write(disk, "consumerOffset.json", {"offsetTable": {key: {"0": 5}}})

    async def between(broker: Broker, client: Peer) -> None:
        for number in range(8):
            pairs = {"TRAN_MSG": "true", "PGROUP": "producers", "UNIQ_KEY": f"key{number}"}
            assert (await client.call(send("orders", b"%d" % number, pairs=pairs, f="4"))).code == 0

    async def found(broker: Broker, client: Peer) -> None:
        assert broker.parts is not None
        assert sorted(broker.parts.transactions.book.open) == list(range(8))

    _two_crashes(prepare, between, found)


def test_a_start_that_fails_behind_its_store_leaves_the_mark_of_the_crash() -> None:
    disk = SimDisk()

    async def nothing(broker: Broker, client: Peer) -> None:
        """Make the folder."""

    _one_life(disk, nothing)
    path = filenames.config(_root(), "sinkDecisions.json")
    disk.make_folders(path.rsplit("/", 1)[0])
    file = disk.open(path, create=True)
    file.pwrite(b"}", 0)
    file.close()
    disk.open(filenames.abort(_root()), create=True).close()
    with pytest.raises(StoreError, match=r"sinkDecisions\.json"):
        _one_life(disk, nothing)
    point = recoverypoint.load(disk, _root())
    assert point is not None and not point.clean and disk.exists(filenames.abort(_root()))


def test_nothing_is_written_to_a_members_folder_without_its_lock(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"a secret for tests, long enough for one")
    secret = str(tmp_path / "secret")
    group: dict[str, object] = {
        "replication__secret_file": secret,
        "role": "SYNC_MASTER",
        "replication__min_in_sync": 1,
    }
    written: list[tuple[str, bool]] = []

    class Watched(SimDisk):
        """Notes which file is replaced, and whether the lock is held then."""

        def rename(self, path: str, new_path: str) -> None:
            written.append((new_path, filenames.lock(_root()) in self._held))
            super().rename(path, new_path)

    disk = Watched()

    async def another_comes(broker: Broker, client: Peer) -> None:
        before = disk.files()
        other = Broker(
            configuration(Path("/broker"), **group),
            machine=Machine(disk=disk, background=lambda disk: InlineBackground()),
        )
        with pytest.raises(StoreError, match="is locked by another broker"):
            await other.start()
        await other.stop()
        assert disk.files() == before

    _one_life(disk, another_comes, **group)
    _one_life(disk, another_comes, **group)
    assert {path for path, _ in written} >= {filenames.term_promise(_root()), filenames.epochs(_root())}
    assert [path for path, is_locked in written if not is_locked] == []
