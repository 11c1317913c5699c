from __future__ import annotations

import pytest

from gantry.store.watermarks import Watermark


def test_listeners_hear_each_advance_in_the_order_of_subscription() -> None:
    mark, heard = Watermark(5), []
    mark.listen(lambda offset: heard.append(("a", offset)))
    mark.listen(lambda offset: heard.append(("b", offset)))
    mark.advance(9)
    assert heard == [("a", 9), ("b", 9)] and mark.offset == 9


def test_what_is_passed_already_is_no_news() -> None:
    mark, heard = Watermark(5), []
    mark.listen(heard.append)
    mark.advance(5)
    mark.advance(3)
    assert heard == [] and mark.offset == 5


def test_a_mark_cannot_pass_its_ceiling() -> None:
    above = Watermark(10)
    mark = Watermark(0, above)
    mark.advance(10)
    with pytest.raises(AssertionError):
        mark.advance(11)
    with pytest.raises(AssertionError):
        Watermark(11, above)


def test_a_listener_may_move_the_mark_on() -> None:
    mark, heard = Watermark(0), []
    mark.listen(lambda offset: mark.advance(2) if offset == 1 else None)
    mark.listen(heard.append)
    mark.advance(1)
    assert mark.offset == 2 and heard[0] == 2
