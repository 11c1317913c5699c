"""What `gantry nameserver` makes of its flags and variables."""

from __future__ import annotations

import argparse

import pytest

from gantry.cli import nameserver


@pytest.mark.parametrize(
    ("flags", "variable", "expected"),
    [([], None, False), ([], "", False), ([], "false", False), ([], "true", True), (["--await-brokers"], None, True)],
)
def test_brokers_are_awaited_by_a_flag_or_a_variable(
    flags: list[str], variable: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GANTRY_NAMESERVER_AWAIT_BROKERS", raising=False)
    if variable is not None:
        monkeypatch.setenv("GANTRY_NAMESERVER_AWAIT_BROKERS", variable)
    parser = argparse.ArgumentParser()
    nameserver.configure(parser)
    assert parser.parse_args(flags).await_brokers is expected
