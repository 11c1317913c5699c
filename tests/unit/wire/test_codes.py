"""Numbers under RocketMQ's names, and the table of what is not served."""

from __future__ import annotations

from gantry.leaves import frames
from gantry.wire import headers
from gantry.wire.codes import SERVER_TO_CLIENT, UNSUPPORTED, Language, RequestCode, unsupported_remark


def test_every_unsupported_code_has_a_name_and_a_remark() -> None:
    assert set(UNSUPPORTED) <= set(RequestCode)
    assert all(20 < len(remark) < 120 and not remark.endswith(".") for remark in UNSUPPORTED.values())


def test_what_a_client_answers_is_not_served() -> None:
    assert set(UNSUPPORTED) >= SERVER_TO_CLIENT


def test_every_served_code_has_a_row_for_its_header() -> None:
    assert set(RequestCode) - set(UNSUPPORTED) <= set(headers.REQUESTS)


def test_a_remark_names_the_code_and_what_to_do() -> None:
    assert unsupported_remark(513).startswith(" request type 513 not supported; static topics are not supported; use")
    assert unsupported_remark(9999) == " request type 9999 not supported"


def test_the_leaves_know_the_same_languages() -> None:
    assert [language.name for language in Language] == list(frames.LANGUAGES)
    assert (Language.PYTHON, Language.OTHER) == (frames.LANGUAGE_PYTHON, frames.LANGUAGE_OTHER)
