"""Every option of the command line is shown by a test: what it does, not that it can be typed.

The options are those of the parsers, the tests are those that carry the mark `shows`; a new option without a test
fails here, and so does a mark for an option that is gone.  A test that says it shows an option types it.
"""

from __future__ import annotations

import ast
import re

from testkit.commandline import CALLS, options
from testkit.sources import ROOT, python_files, tree_of

# Typed with every command of CALLS by tests/scenarios/test_any_command.py, and with every server by
# tests/unit/cli/test_server_options.py.
EVERYWHERE = {f"{command} {flag}" for command in CALLS for flag in ("--namesrv", "--timeout", "--output")}
SERVERS = ("standalone", "nameserver", "broker", "proxy", "queues", "coordinator", "local up", "local wires")
LOGS = {f"{server} {flag}" for server in SERVERS for flag in ("--log-format", "--log-level")}


def marks() -> dict[str, str]:
    """Option -> the test that shows it, and the test's source without its marks."""
    found = {}
    for path in python_files("tests"):
        if "mark.shows(" not in (ROOT / path).read_text(encoding="utf-8"):
            continue
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                own = [one for one in node.decorator_list if "mark.shows(" in ast.unparse(one)]
                source = ast.unparse([one for one in [*node.decorator_list, *node.body] if one not in own])
                for mark in own:
                    assert isinstance(mark, ast.Call)
                    found.update({str(ast.literal_eval(one)): f"{path}::{node.name}\n{source}" for one in mark.args})
    return found


def test_every_option_is_shown_by_a_test_and_every_mark_names_an_option() -> None:
    there, shown = options().keys(), marks().keys() | EVERYWHERE | LOGS
    assert not there - shown, f"no test has the mark shows(...) for: {', '.join(sorted(there - shown))}"
    assert not shown - there, f"marked, and no option: {', '.join(sorted(shown - there))}"


def test_a_test_that_shows_an_option_types_it() -> None:
    for option, test in marks().items():
        flag = option.rpartition(" ")[2]
        assert re.search(rf"{flag}\b", test), f"{test.partition(chr(10))[0]} does not type {flag}"


def test_a_number_on_the_command_line_has_bounds() -> None:
    for name, action in options().items():
        assert action.type not in (int, float), f"{name}: use Whole or Number of gantry.cli.numbers"
