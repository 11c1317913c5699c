"""Members and sets as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantry.replication.members import MEMBERS_MAX, NUMBER_MAX, Member, format_set, parse_member, parse_set

members = st.builds(Member, st.integers(0, MEMBERS_MAX - 1), st.integers(0, NUMBER_MAX))
sets = st.lists(members, unique_by=lambda member: member.ordinal).map(frozenset)


@given(sets)
def test_a_set_is_read_as_it_was_written(group: frozenset[Member]) -> None:
    assert parse_set(format_set(group)) == group


def test_equal_sets_have_equal_texts() -> None:
    assert format_set([Member(10, 1), Member(2, 7)]) == format_set([Member(2, 7), Member(10, 1)]) == "2.7,10.1"


@pytest.mark.parametrize(
    "text", ["", "1", "1.", ".1", "-1.0", "1.0.0", " 1.0", "64.0", f"0.{NUMBER_MAX + 1}", "٣.1", "1.1\n"]
)
def test_what_is_no_member_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no member"):
        parse_member(text)


@pytest.mark.parametrize("text", ["0.1,0.2", "0.1,,1.1", ",", "0.1,"])
def test_what_is_no_set_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no member|names an ordinal twice"):
        parse_set(text)


@given(st.text(max_size=40))
def test_any_other_text_is_a_set_or_a_value_error(text: str) -> None:
    try:
        assert parse_set(format_set(parse_set(text))) == parse_set(text)
    except ValueError:
        pass
