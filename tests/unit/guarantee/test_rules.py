"""Decisions about what the guarantee's statements find."""

from __future__ import annotations

import pytest

from gantry.guarantee import rules


@pytest.mark.parametrize(
    ("effect", "until", "wanted"),
    [
        ("done", 0, rules.LogFinding.DONE),
        ("refused", 0, rules.LogFinding.REFUSED),
        ("unknown", 999, rules.LogFinding.UNKNOWN),
        ("processing", 101, rules.LogFinding.HELD),
        ("processing", 100, rules.LogFinding.UNKNOWN),
    ],
)
def test_a_log_row_is_judged_by_its_effect_and_its_owners_time(
    effect: str, until: int, wanted: rules.LogFinding
) -> None:
    assert rules.judge(effect, until, 100) is wanted


@pytest.mark.parametrize(
    ("verdict", "may"),
    [
        ([], True),
        ([("open", None)], True),
        ([("void", None)], False),
        ([("open", "open")], True),
        ([("legacy", "legacy")], True),
        ([("legacy", None)], True),
        ([("open", "confirmed")], False),
        ([("open", "closed")], False),
        ([("void", "void")], False),
    ],
)
def test_a_new_message_has_its_effect_unless_its_stub_or_delivery_forbids_it(
    verdict: list[tuple[str, str | None]], may: bool
) -> None:
    assert rules.may_have_effect(verdict) is may


def test_backoff_doubles_up_to_a_limit_and_is_never_now() -> None:
    assert [rules.next_resend_ms(7, attempt, 1_000) for attempt in (0, 1, 2, 3, 50)] == [
        1_007, 1_007, 2_007, 4_007, 1_024_007,
    ]  # fmt: skip
    assert rules.next_resend_ms(7, 1, 0) == 8
    assert rules.next_resend_ms(7, 2, 10, backlog_ms=100) == 7 + 100 + 20


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ({"message_id": "k" * 256}, "message_id has 256 characters, 255 are allowed; shorten it"),
        ({"broker": "k" * 128}, "broker has 128 characters, 127 are allowed"),
        ({"message_keys": "a\0b"}, "message_keys has a NUL at character 1; databases do not store it in a text"),
        ({"tags": "\ud800"}, "tags is no Unicode text: surrogates not allowed; replace its lone surrogates"),
    ],
)
def test_texts_that_some_database_does_not_hold_are_refused_with_the_reason(texts: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        rules.check_texts(**texts)


def test_texts_that_all_databases_hold_pass() -> None:
    rules.check_texts(message_id="k" * 255, broker="b" * 127, message_keys="k" * 65_536, topic="räuber 🦝", tags="")
