"""Op messages: ours say outcomes, RocketMQ's name offsets, hostile ones say nothing."""

from __future__ import annotations

import pytest

from gantry.model import names
from gantry.transaction.oplog import SETTLED_MAX, Outcome, Settled, offsets_in, op_message, settled_in

HOST = bytes(8)
C, R, G = Outcome.COMMITTED, Outcome.ROLLED_BACK, Outcome.GIVEN_UP


def test_what_is_written_reads_the_same_and_names_every_place_in_the_body() -> None:
    settled = [Settled(12, C), Settled(15, R, (40, 77)), Settled(0, G)]
    op = op_message(settled, 7, HOST)
    assert settled_in(op.properties) == settled
    assert op.body == b"12,15,40,77,0,"
    assert (op.topic, op.queue_id, op.keys) == (names.OP_HALF_TOPIC, 0, b"12 15 0")


def test_rocketmq_finds_its_tag_and_a_body_that_is_short_enough() -> None:
    op = op_message([Settled(10**15 + number, C, (10**15,)) for number in range(SETTLED_MAX)], 7, HOST)
    assert b"TAGS\x01d\x02" in op.properties and op.tags_code == ord("d")
    assert len(op.body) <= 4096 and len(op.properties) < 32767


@pytest.mark.parametrize(
    ("body", "offsets"),
    [(b"12", [12]), (b"12,15,", [12, 15]), (b"", []), (b",,7,", [7]), (b"x,-1,3", [3]), (b"9" * 40, [])],
)
def test_bodies_single_and_batched(body: bytes, offsets: list[int]) -> None:
    assert offsets_in(body) == offsets


def test_an_op_of_rocketmq_s_has_no_outcome() -> None:
    assert settled_in(b"TAGS\x01d\x02") is None
    assert settled_in(b"GANTRY_TX\x01nonsense 5c 7x \xff 8r:\x02") == [Settled(5, C)]
