"""What an answer says is missing, by every way in which brokers say it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gantry.client.results import PullResult, PullStatus
from gantry.errors import RemoteProtocolError
from pyspark_gantrymq import gaps
from pyspark_gantrymq.offsets import Queue, Stretch

ASKED = Stretch(Queue("t", "b", 0), 10, 20)
EMPTY, NO_MATCH, ILLEGAL = PullStatus.NO_NEW_MESSAGE, PullStatus.NO_MATCH, PullStatus.OFFSET_ILLEGAL


def judged(
    status: PullStatus, to: int, first: int = 0, offsets: Sequence[int] = (), is_filtered: bool = False
) -> tuple[list[tuple[int, int]], int]:
    lost, at = gaps.judged(ASKED, PullResult(status, to, first, 99), offsets, is_filtered)
    return [(one.start, one.end) for one in lost], at


@pytest.mark.parametrize(
    ("offsets", "lost", "to"),
    [
        ([10, 11, 12], [], 13),
        ([13, 14], [(10, 13)], 15),
        ([10, 12, 13, 16], [(11, 12), (14, 16)], 17),
        ([10, 24, 25], [(11, 20)], 20),
        ([23, 25], [(10, 20)], 20),
        ([18, 19, 20, 22], [(10, 18)], 20),
    ],
)
def test_what_lies_between_messages_is_lost_unless_there_is_a_filter(
    offsets: list[int], lost: list[tuple[int, int]], to: int
) -> None:
    assert judged(PullStatus.FOUND, 30, 0, offsets) == (lost, to)
    assert judged(PullStatus.FOUND, 30, 0, offsets, is_filtered=True) == ([], 30)


@pytest.mark.parametrize("offsets", [[9, 10], [10, 10], [10, 12, 11]])
def test_offsets_that_cannot_be_are_no_loss(offsets: list[int]) -> None:
    with pytest.raises(RemoteProtocolError, match=r"t/b/0: message \d+ came where \d+ or a later one was due"):
        judged(PullStatus.FOUND, 30, 0, offsets)


@pytest.mark.parametrize("is_filtered", [True, False])
@pytest.mark.parametrize(
    ("status", "to", "first"),
    [
        pytest.param(ILLEGAL, 14, 14, id="a master"),
        pytest.param(NO_MATCH, 14, 14, id="our slave"),
        pytest.param(NO_MATCH, 10, 14, id="a slave of Apache's"),
        pytest.param(EMPTY, 14, 0, id="a damaged queue"),
    ],
)
def test_what_a_broker_does_not_have_is_lost_with_a_filter_too(
    status: PullStatus, to: int, first: int, is_filtered: bool
) -> None:
    assert judged(status, to, first, is_filtered=is_filtered) == ([(10, 14)], 14)


def test_going_on_without_a_message_is_a_loss_where_nothing_was_filtered() -> None:
    assert judged(NO_MATCH, 14) == ([(10, 14)], 14)
    assert judged(NO_MATCH, 14, is_filtered=True) == ([], 14)


def test_nothing_behind_the_end_is_counted() -> None:
    assert judged(NO_MATCH, 700, 700) == judged(NO_MATCH, 700) == judged(EMPTY, 700) == ([(10, 20)], 20)


@pytest.mark.parametrize("is_filtered", [True, False])
@pytest.mark.parametrize(("status", "to"), [(EMPTY, 10), (EMPTY, 0), (NO_MATCH, 10), (ILLEGAL, 8), (ILLEGAL, 15)])
def test_who_is_behind_or_was_told_to_go_elsewhere_lost_nothing(
    status: PullStatus, to: int, is_filtered: bool
) -> None:
    assert judged(status, to, is_filtered=is_filtered) == ([], 10)
