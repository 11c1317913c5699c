from __future__ import annotations

import json
import logging
import sys

from gantry.cli.logs import JsonLines


def _record(exc_info: object = None) -> logging.LogRecord:
    return logging.LogRecord("gantry.broker", logging.WARNING, __file__, 1, "disk %s full", ("订",), exc_info)  # type: ignore[arg-type]


def test_a_json_line_is_one_object_with_the_time_in_milliseconds() -> None:
    line = JsonLines().format(_record())
    assert "\n" not in line
    entry = json.loads(line)
    assert entry["message"] == "disk 订 full"
    assert entry["level"] == "warning"
    assert isinstance(entry["time_ms"], int)


def test_a_stack_goes_into_the_same_line() -> None:
    try:
        raise ValueError("bad")
    except ValueError:
        line = JsonLines().format(_record(sys.exc_info()))
    assert "\n" not in line
    assert "ValueError: bad" in json.loads(line)["stack"]
