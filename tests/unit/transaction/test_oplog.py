"""Op messages: ours say outcomes, for RocketMQ 4 and 5 to read; RocketMQ's name offsets, hostile ones say nothing."""

from __future__ import annotations

import pytest

from gantry.leaves import frames
from gantry.model import names
from gantry.transaction.oplog import Settled, TransactionState, cut_short, mark, offsets_in, op_messages, settled_in

HOST = bytes(8)
C, R, G = TransactionState.COMMITTED, TransactionState.ROLLED_BACK, TransactionState.GIVEN_UP


@pytest.mark.parametrize("settled", [Settled(12, C), Settled(15, R, (40, 77)), Settled(0, G, (10**18,))])
def test_every_place_has_an_op_whose_body_is_its_number_and_which_says_all(settled: Settled) -> None:
    ops = op_messages(settled, 7, HOST)
    assert [op.body for op in ops] == [b"%d" % place for place in (settled.root, *settled.copies)]
    for op in ops:
        assert settled_in(op.properties) == [settled]
        assert (op.topic, op.queue_id, op.keys) == (names.OP_HALF_TOPIC, 0, b"%d" % settled.root)
        assert b"TAGS\x01d\x02" in op.properties and op.tags_code == ord("d")


def java_long(body: bytes) -> int:
    """RocketMQ's getLong: what is no number is -1."""
    try:
        return int(body)
    except ValueError:
        return -1


def test_a_mark_settles_nothing_here_and_is_done_at_once_in_rocketmq_4_and_5() -> None:
    op = mark(7, HOST)
    assert settled_in(op.properties) == [] and offsets_in(op.body) == [] and not op.keys
    assert [java_long(word) for word in op.body.split(b",")] == [-1], "below any half offset"


def test_an_op_with_more_to_follow_is_known_by_itself() -> None:
    first, second, last = op_messages(Settled(15, R, (40, 77)), 7, HOST)
    (alone,) = op_messages(Settled(12, C), 7, HOST)

    def cut(op: frames.Send, body: bytes | None = None) -> Settled | None:
        return cut_short(op.properties, op.body if body is None else body)

    assert cut(first) == cut(second) == Settled(15, R, (40, 77))
    assert cut(last) is None and cut(alone) is None and cut(mark(7, HOST)) is None
    assert cut(first, b"15,40,77,") is None, "a list names them all"
    assert cut_short(b"TAGS\x01d\x02", b"15") is None, "RocketMQ's own"


def test_several_transactions_in_one_op_are_read() -> None:
    assert settled_in(b"GANTRY_TX\x0112c 15r:40:77 0g\x02") == [Settled(12, C), Settled(15, R, (40, 77)), Settled(0, G)]


@pytest.mark.parametrize(
    ("body", "offsets"),
    [(b"12", [12]), (b"12,15,", [12, 15]), (b"", []), (b",,7,", [7]), (b"x,-1,3", [3]), (b"9" * 40, [])],
)
def test_bodies_single_and_batched(body: bytes, offsets: list[int]) -> None:
    assert offsets_in(body) == offsets


def test_an_op_of_rocketmq_s_has_no_outcome() -> None:
    assert settled_in(b"TAGS\x01d\x02") is None
    assert settled_in(b"GANTRY_TX\x01nonsense 5c 7x \xff 8r:\x02") == [Settled(5, C)]


@pytest.mark.parametrize("state", [b"c", b"12", b"12x", b"12\xff", b"-1c", b"9" * 20 + b"c"])
def test_a_hostile_state_settles_nothing(state: bytes) -> None:
    assert settled_in(b"GANTRY_TX\x01%b\x02" % state) == []
