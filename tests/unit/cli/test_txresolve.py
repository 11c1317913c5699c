"""`gantry tx resolve` against a broker that says what a test wants."""

from __future__ import annotations

import argparse
import asyncio
import json

import pytest

from gantry.cli import tx
from gantry.cli.errors import report
from gantry.leaves.frames import Command
from gantry.wire import bodies
from gantry.wire.codes import RequestCode
from gantry.wire.command import reply
from testkit.scripted import ScriptedCluster, body

LIST, DECIDE, END = RequestCode.LIST_SINKS, RequestCode.DECIDE_BATCH, RequestCode.END_BATCH


def part(name: str, halves: int = 2) -> dict[str, object]:
    place: dict[str, object] = {"sinkId": "s", "batch": 4, "part": name, "home": "broker-a"}
    return {**place, "halves": halves, "ageMs": 5000, "verdict": "undecided"}


def page(*parts: dict[str, object], more: int = 0) -> dict[str, object]:
    known = {"sinkId": "s", "home": "broker-a", "batch": 3, "done": True, "parts": 0, "aborted": 1, "decidedMs": 9}
    return {"sinks": [known], "parts": list(parts), "sinkCount": 1, "partCount": len(parts) + more}


def decision(batch: int, parts: list[str], is_done: bool = False) -> dict[str, object]:
    return {"batch": batch, "parts": parts, "groups": ["broker-a"], "done": is_done}


def run(parts: list[dict[str, object]], *arguments: str, more: int = 0) -> tuple[int, list[Command]]:
    """The exit code, and what was decided and ended."""

    async def story() -> tuple[int, list[Command]]:
        async with ScriptedCluster(1) as cluster:
            decided = [False]

            def decide(command: Command) -> Command:
                decided[0] |= command.ext["action"] == "commit"
                is_done = command.ext["action"] == "done"
                found = decision(4, ["0-x"], is_done) if decided[0] else decision(3, [], True)
                return reply(command, body=bodies.dumps(found))

            cluster.answers["broker-a", LIST] = body(page(*parts, more=more))
            cluster.answers["broker-a", DECIDE] = decide
            cluster.answers["broker-a", END] = body({"settled": 0, "left": 0})
            parser = argparse.ArgumentParser()
            tx.configure(parser)
            parsed = parser.parse_args(["resolve", *arguments, "--namesrv", cluster.nameserver])
            code = await asyncio.to_thread(report, lambda: tx.run(parsed))
            return code, [*cluster.asked("broker-a", DECIDE), *cluster.asked("broker-a", END)]

    return asyncio.run(story())


@pytest.mark.shows("tx resolve --sink")
def test_it_lists_first_and_decides_nothing_unasked(capsys: pytest.CaptureFixture[str]) -> None:
    code, asked = run([part("0-x"), part("1-y", 3)], "--sink", "s", "--output", "json")
    shown = json.loads(capsys.readouterr().out)
    assert code == 0 and asked == []
    assert [(row["sink"], row["batch"], row["done"]) for row in shown["sinks"]] == [("s", 3, True)]
    assert [(row["part"], row["halves"], row["verdict"]) for row in shown["open"]] == [
        ("0-x", 2, "undecided"),
        ("1-y", 3, "undecided"),
    ]


@pytest.mark.shows("tx resolve --batch", "tx resolve --commit")
def test_a_commit_by_hand_names_what_is_open_and_the_operator(capsys: pytest.CaptureFixture[str]) -> None:
    code, asked = run([part("0-x")], "--sink", "s", "--batch", "4", "--commit")
    assert code == 0, capsys.readouterr().err
    commit = next(one for one in asked if one.ext.get("action") == "commit")
    assert bodies.loads_object(commit.body) == {"parts": ["0-x"], "groups": ["broker-a"]} and commit.ext["operator"]
    assert [one.ext["action"] for one in asked if one.code == DECIDE] == ["ask", "commit", "done"]


def test_two_tries_of_a_partition_have_to_be_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    code, asked = run([part("0-x"), part("0-z")], "--sink", "s", "--batch", "4", "--commit")
    assert code and "choose one try" in capsys.readouterr().err
    assert all(one.ext.get("action") == "ask" for one in asked)
    assert run([part("0-x"), part("0-z")], "--sink", "s", "--batch", "4", "--commit", "--part", "0-x")[0] == 0


def test_a_batch_is_not_committed_without_the_parts_that_were_not_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, asked = run([part("0-x")], "--sink", "s", "--batch", "4", "--commit", more=7)
    told = capsys.readouterr().err
    assert code and "7 open parts are not listed" in told and "name a sink" not in told
    assert asked == []
    assert run([part("0-x")], "--sink", "s", "--batch", "4", "--commit", "--part", "0-x", more=7)[0] == 0
    run([part("0-x")], more=7)
    assert "7 more are not shown; name a sink" in capsys.readouterr().err


@pytest.mark.shows("tx resolve --abort", "tx resolve --part")
def test_an_abort_by_hand_ends_the_parts_and_leaves_the_batch_open() -> None:
    code, asked = run([part("0-x"), part("1-y")], "--sink", "s", "--batch", "4", "--abort", "--part", "1-y")
    assert code == 0
    assert [one.ext["action"] for one in asked if one.code == DECIDE] == ["ask", "abort"]
    ended = [bodies.loads_object(one.body) for one in asked if one.code == END]
    assert ended == [{"aborted": ["1-y"]}]


@pytest.mark.shows("tx resolve --forget")
def test_a_sink_is_forgotten_by_its_home_too(capsys: pytest.CaptureFixture[str]) -> None:
    code, asked = run([], "--sink", "s", "--forget")
    assert code == 0 and "s: forgotten" in capsys.readouterr().err
    assert [one.ext["action"] for one in asked] == ["ask", "forget"]


@pytest.mark.parametrize(
    "arguments",
    [["--batch", "4", "--commit"], ["--sink", "s", "--commit"], ["--sink", "s", "--batch", "4"], ["--forget"]],
)
def test_what_is_missing_is_said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, asked = run([], *arguments)
    assert code and asked == [] and "--" in capsys.readouterr().err
