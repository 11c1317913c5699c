"""The command line as the program itself has it: every command, every option; and calls of it inside this process.

    PARSERS["topic create"]           its argparse parser
    run("topic", "create", "tea")     Done(code=0, out="topic/tea created\n", err="")

A test that shows what an option does says so by a mark, which `tests/tidy/test_options.py` holds against the parsers:

    @pytest.mark.shows("topic create --queues")
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import sys
from collections.abc import Iterator
from typing import NamedTuple

from gantry.cli.main import COMMANDS, main

# How each command of a client is called where it asks a cluster something; {topic} and {group} are there.
CALLS = {
    "produce": "produce {topic} body",
    "consume": "consume {topic} --group {group} --count 1",
    "topic list": "topic list",
    "topic create": "topic create {topic}",
    "topic delete": "topic delete {topic}",
    "topic status": "topic status {topic}",
    "topic find": "topic find {topic} --key k",
    "tail": "tail {topic} --last 1 --count 1",
    "peek": "peek {topic} --count 1",
    "lag": "lag",
    "group list": "group list",
    "group create": "group create {group}",
    "group delete": "group delete {group}",
    "group progress": "group progress {group} --topic {topic}",
    "group reset": "group reset {group} {topic} --to first",
    "tx ls": "tx ls",
    "tx show": "tx show ID",
    "tx commit": "tx commit ID",
    "tx rollback": "tx rollback ID",
    "tx rearm": "tx rearm ID",
    "tx resolve": "tx resolve",
    "delay ls": "delay ls",
    "delay cancel": "delay cancel ID",
    "dlq ls": "dlq ls",
    "dlq show": "dlq show {group}",
    "dlq replay": "dlq replay {group}",
    "cluster list": "cluster list",
    "cluster info": "cluster info broker-a",
    "store clean": "store clean --dry-run",
}


class Done(NamedTuple):
    """How a call ended."""

    code: int
    out: str
    err: str


def _leaves(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield name, parser
    for choices in below:
        for word, each in choices.choices.items():
            yield from _leaves(f"{name} {word}", each)


def _parsers() -> dict[str, argparse.ArgumentParser]:
    found: dict[str, argparse.ArgumentParser] = {}
    for command in COMMANDS:
        parser = argparse.ArgumentParser(prog=command)
        importlib.import_module(f"gantry.cli.{command}").configure(parser)
        found.update(_leaves(command, parser))
    return found


PARSERS = _parsers()


def options() -> dict[str, argparse.Action]:
    """Every option, as `topic create --queues`, and its action."""
    return {
        f"{name} {action.option_strings[0]}": action
        for name, parser in PARSERS.items()
        for action in parser._actions
        if action.option_strings and action.dest != "help"
    }


def run(*arguments: str, stdin: bytes = b"") -> Done:
    """Call the program inside this process; wrong use, which ends a process, is code 2 here as well."""
    out, err = io.StringIO(), io.StringIO()
    kept, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(list(arguments))
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdin = kept
    return Done(code, out.getvalue(), err.getvalue())


def call(command: str, topic: str = "T", group: str = "g") -> list[str]:
    """The words of one of CALLS."""
    return CALLS[command].format(topic=topic, group=group).split(" ")


@contextlib.contextmanager
def name_server(address: str) -> Iterator[None]:
    """What NAMESRV_ADDR says meanwhile."""
    kept = os.environ.get("NAMESRV_ADDR")
    os.environ["NAMESRV_ADDR"] = address
    try:
        yield
    finally:
        if kept is None:
            del os.environ["NAMESRV_ADDR"]
        else:
            os.environ["NAMESRV_ADDR"] = kept
