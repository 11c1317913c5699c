"""What the previous version said and wrote, frozen as it came from its code: registers, links, files of a member.

`previous/8180811.json` was written by the code of that commit: documents as text, frames and files in hex.  In a
rolling upgrade members of both versions are in one group, so both directions count: this version reads that, and what
it writes has every field that the previous version reads, of the same type.  Later fields are extra and optional.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gantry.replication import haapi, lease, member_files, term_promise
from gantry.replication import record as records
from gantry.replication.epochs import table_of
from gantry.replication.handshake import Hello, Step, Welcome, read_hello, read_welcome
from gantry.replication.hastate import MemberRole, MemberState, read_state
from gantry.replication.lease import LeaseAddress, LeaseRegister
from gantry.replication.member_files import Plan, StoreIdentity
from gantry.replication.members import Member
from gantry.replication.record import Holder
from gantry.replication.registerfile import FileRegister
from gantry.replication.term_promise import Ending, TermPromise
from gantry.store import filenames
from gantry.wire import ha
from gantry.wire.ha import Ack, Beat, Chunk, FrameType
from testkit.registers import ACTIVE
from testkit.simdisk import SimDisk

SAID: dict[str, str] = json.loads((Path(__file__).parent / "previous" / "8180811.json").read_text())
EPOCHS = table_of([(1, 0), (4, 700)])
HELLO = Hello("1f0e7d", "b0", 1, "77aa", EPOCHS, 0, 900, 800, 65536, 12345, 0, "p1")
WELCOME = Welcome("1f0e7d", 4, EPOCHS, Step.CUT, 700)
STATE = MemberState(
    "1f0e7d", "b0", "8f1c", Holder(Member(1, 4096), "2c41"), MemberRole.MASTER, 4, 5, 4, 100, 900, 800, True
)
TERM_PROMISE = TermPromise(2, 3, 5, "boot", True, Ending.CLEAN, 900)
CHANGES = json.loads(bytes.fromhex(SAID["metadata"])[ha.HEAD.size + 8 :])
FRAMES = {
    "metadata": ha.metadata(7, CHANGES),
    "chunk head": ha.chunk_head(4, 700, 690, 100, 3) + b"abc",
    "beat": ha.beat(900, 800, 100, 5),
    "ack": ha.ack(900, 890, 7, 5),
    "promise": ha.promise(FrameType.PROMISE, 6),
    "promised": ha.promise(FrameType.PROMISED, 6),
}


def placed(name: str, path: str) -> SimDisk:
    """A member's folder with a file of the previous version."""
    disk = SimDisk()
    disk.make_folders(filenames.ours("/s"))
    data = bytes.fromhex(SAID[name]) if name == "epochs" else SAID[name].encode()
    disk.open(path, create=True).pwrite(data, 0)
    return disk


def written(path: str, save: Callable[[SimDisk], None]) -> bytes:
    """What this version makes of the same thing."""
    disk = SimDisk()
    save(disk)
    return disk.files()[path]


def saved_identity(disk: SimDisk) -> None:
    member_files.save_identity(disk, "/s", StoreIdentity("c", "s"))


def saved_plan(disk: SimDisk) -> None:
    disk.make_folders(filenames.ours("/s"))
    member_files.save_plan(disk, "/s", Plan(Step.CUT, 700, EPOCHS))


def test_documents_of_a_link_and_a_door_are_read() -> None:
    assert read_hello(SAID["hello"].encode()) == HELLO
    assert read_welcome(SAID["welcome"].encode()) == WELCOME
    assert read_state(json.loads(SAID["state"])) == STATE
    asked = haapi.Said("POST", haapi.SEAL, SAID["seal"].encode())
    assert haapi.read(asked, STATE) == haapi.Asked(haapi.SEAL, 6)


@pytest.mark.parametrize("name", FRAMES)
def test_frames_of_a_link_are_the_same_bytes(name: str) -> None:
    assert FRAMES[name].hex() == SAID[name]


def test_frames_of_a_link_are_read() -> None:
    def body(name: str) -> memoryview:
        return memoryview(bytes.fromhex(SAID[name]))[ha.HEAD.size :]

    assert ha.read_beat(body("beat")) == Beat(900, 800, 100, 5) and ha.read_ack(body("ack")) == Ack(900, 890, 7, 5)
    chunk = ha.read_chunk(body("chunk head"))
    assert chunk._replace(records=memoryview(b"abc")) == Chunk(4, 700, 690, 100, memoryview(b"abc"))


async def test_a_register_is_read_and_goes_on() -> None:
    disk = SimDisk()
    disk.make_folders("/r")
    disk.open("/r/register", create=True).pwrite(SAID["register file"].encode(), 0)
    register = FileRegister("/r/register", disk)
    found = await register.read()
    assert found is not None and found.record == replace(ACTIVE, leader_terms=None)
    raised = replace(ACTIVE, set_version=18)
    assert (await register.write(raised, found.version)).record == raised
    table = json.loads(disk.files()["/r/register"])
    assert fits(json.loads(SAID["register file"]), table), "a member of the previous version reads it"
    await register.close()


def test_a_lease_is_read_and_written_alike() -> None:
    address = LeaseAddress("https://k", "n", "orders-b0", lambda: "", None, {})
    register = LeaseRegister(address, "w1", 1.0)
    said = json.loads(SAID["lease"])
    seen = register._seen(SAID["lease"].encode())
    assert (seen.record, seen.version) == (replace(ACTIVE, leader_terms=None), "812")
    assert fits(said["metadata"]["annotations"], register._annotations(ACTIVE))
    assert lease._spec(ACTIVE) == said["spec"]


def test_the_files_of_a_member_are_read() -> None:
    identity = member_files.load_identity(placed("identity", filenames.identity("/s")), "/s")
    assert identity == StoreIdentity("1f0e7d", "77aa")
    assert member_files.load_epochs(placed("epochs", filenames.epochs("/s")), "/s") == EPOCHS
    assert member_files.load_plan(placed("reshape", filenames.reshape("/s")), "/s") == Plan(Step.CUT, 700, EPOCHS)
    assert term_promise.load(placed("vows", filenames.term_promise("/s")), "/s") == TERM_PROMISE


def fits(former: object, now: object) -> bool:
    """Whether anyone who reads the former document finds all that it needs in this one."""
    if isinstance(former, dict):
        return isinstance(now, dict) and all(name in now and fits(value, now[name]) for name, value in former.items())
    return type(former) is type(now)


@pytest.mark.parametrize(
    ("name", "now"),
    [
        ("hello", HELLO.encode()),
        ("welcome", WELCOME.encode()),
        ("state", json.dumps(STATE.to_document())),
        ("seal", haapi.order(haapi.SEAL, haapi.MemberId("1f0e7d", "b0", 1), 6).body),
        ("register file", json.dumps({**records.to_fields(ACTIVE), "version": 1})),
        ("identity", written(filenames.identity("/s"), saved_identity)),
        ("reshape", written(filenames.reshape("/s"), saved_plan)),
        ("vows", written(filenames.term_promise("/s"), lambda d: term_promise.save(d, "/s", TERM_PROMISE))),
    ],
)
def test_the_previous_version_reads_what_this_one_writes(name: str, now: str | bytes) -> None:
    assert fits(json.loads(SAID[name]), json.loads(now)), f"{name}: a field that the previous version needs is gone"


def test_epochs_are_the_same_bytes() -> None:
    assert EPOCHS.encode().hex() == SAID["epochs"]
