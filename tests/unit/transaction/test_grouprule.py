from __future__ import annotations

import pytest

from gantry.transaction import grouprule
from gantry.transaction.grouprule import CONSUMERS, GroupRule


def test_topics_of_all_groups_are_bounded_and_nothing_is_said_of_what_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grouprule, "_NAMES_MAX", 3)
    said: list[str] = []
    rule = GroupRule(lambda cause, text: said.append(cause))
    for group in ("a", "b"):
        for topic in ("T", "U"):
            rule.note_half(group, topic)
    assert sum(map(len, rule.groups.values())) == 3
    for _ in rule.look_at_consumers(lambda group: ["T", "U", "V"]):
        pass
    assert rule.violations == {("a", CONSUMERS): 1} and len(said) == 1, "b may send for V, as for U"
