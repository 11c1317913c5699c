"""Promises of a member while it runs."""

from __future__ import annotations

from gantry.broker.role.membership import Membership
from gantry.broker.role.promise_writer import PromiseWriter
from gantry.errors import StoreError
from gantry.replication import term_promise
from gantry.replication.epochs import EpochTable
from gantry.replication.haproof import Keys
from gantry.replication.member_files import StoreIdentity
from gantry.store.background import InlineBackground
from testkit.simdisk import SimDisk


def test_a_part_that_has_ended_promises_nothing_more() -> None:
    disk, root = SimDisk(), "/member"
    disk.make_folders(f"{root}/gantry")
    member = Membership(Keys(b"k" * 32), StoreIdentity("c", "s"), EpochTable())
    promise_writer = PromiseWriter(member, disk, root, InlineBackground().housekeeper)
    heard: list[StoreError | None] = []
    promise_writer.promise(3, heard.append)
    promise_writer.end()
    promise_writer.promise(4, heard.append)
    assert heard[0] is None and heard[1] is not None
    kept = term_promise.load(disk, root)
    assert kept is not None and kept.promise == 3 == member.term_promise.promise
