"""`gantry tx` against brokers that say what a test wants."""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
from collections.abc import Mapping

import pytest

from gantry.cli import tx
from gantry.cli.errors import report
from gantry.leaves.frames import Command
from gantry.wire.bodies import dumps
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import reply
from testkit.scripted import Answer, ScriptedCluster, body, refuse

LIST, SHOW, SETTLE = RequestCode.LIST_TRANSACTIONS, RequestCode.SHOW_TRANSACTION, RequestCode.SETTLE_TRANSACTION
UNKNOWN = refuse(ResponseCode.QUERY_NOT_FOUND)


def transaction(number: int, state: str = "open") -> dict[str, object]:
    return {
        "id": f"ID{number}",
        "root": number,
        "topic": "Orders",
        "producerGroup": "shop",
        "ageMs": 7000,
        "checks": 2,
        "keys": "o-1",
        "logOffset": 900,
        "halfOffset": number + 1,
        "messageId": "",
        "state": state,
    }


def listing(*pages: list[dict[str, object]]) -> Answer:
    """Page n begins at n."""

    def answer(command: Command) -> Command:
        begin = int(command.ext["begin"])
        following = begin + 1 if begin + 1 < len(pages) else -1
        violations = [{"group": "shop", "kind": "consumers", "seen": 3}]
        document = {"transactions": pages[begin], "next": following, "groupViolations": violations}
        return reply(command, body=dumps(document))

    return answer


def run(
    answers: Mapping[tuple[str, RequestCode], Answer], *arguments: str, groups: int = 1
) -> tuple[int, ScriptedCluster]:
    """The exit code of `gantry tx`, and what it asked."""

    async def story() -> tuple[int, ScriptedCluster]:
        async with ScriptedCluster(groups) as cluster:
            for (name, asked), answer in answers.items():
                cluster.answers[name, asked] = answer
            parser = argparse.ArgumentParser()
            tx.configure(parser)
            parsed = parser.parse_args([*arguments, "--namesrv", cluster.nameserver])
            return await asyncio.to_thread(report, lambda: tx.run(parsed)), cluster

    return asyncio.run(story())


@pytest.mark.shows("tx ls --count")
def test_a_list_is_all_pages_of_all_brokers_with_the_fields_that_are_promised(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answers = {
        ("broker-a", LIST): listing([transaction(1)], [transaction(2)]),
        ("broker-b", LIST): listing([transaction(3)]),
    }
    run(answers, "ls", "--output", "json", "--count", "1", groups=2)
    assert [row["id"] for row in json.loads(capsys.readouterr().out)] == ["ID1", "ID3"]
    code, _ = run(answers, "ls", "--output", "json", groups=2)
    out, err = capsys.readouterr()
    rows = json.loads(out)
    assert code == 0
    assert [(row["id"], row["broker"]) for row in rows] == [
        ("ID1", "broker-a"),
        ("ID2", "broker-a"),
        ("ID3", "broker-b"),
    ]
    promised = ["id", "topic", "producerGroup", "ageMs", "checks", "keys", "logOffset", "halfOffset", "state"]
    assert [rows[0][name] for name in promised] == ["ID1", "Orders", "shop", 7000, 2, "o-1", 900, 2, "open"]
    assert "shop is also used by consumers" in err


@pytest.mark.shows("tx ls --state", "tx ls --group", "tx ls --topic")
def test_a_list_is_narrowed_by_the_broker(capsys: pytest.CaptureFixture[str]) -> None:
    _, cluster = run(
        {("broker-a", LIST): listing([])}, "ls", "--state", "given-up", "--group", "shop", "--topic", "Orders"
    )
    asked = cluster.asked("broker-a", LIST)[0].ext
    assert (asked["state"], asked["group"], asked["topic"]) == ("given-up", "shop", "Orders")
    assert "no transaction is given-up" in capsys.readouterr().err


def test_show_tells_properties_and_body(capsys: pytest.CaptureFixture[str]) -> None:
    whole = {**transaction(1), "properties": {"KEYS": "o-1"}, "body": base64.b64encode(b"tea").decode()}
    code, _ = run({("broker-a", SHOW): body(whole)}, "show", "ID1", "--output", "json")
    shown = json.loads(capsys.readouterr().out)
    assert code == 0
    assert (shown["root"], shown["properties"], shown["body"]) == (1, {"KEYS": "o-1"}, "tea")


@pytest.mark.parametrize(
    ("action", "result"), [("commit", "committed"), ("rollback", "rolled back"), ("rearm", "armed again")]
)
def test_settling_names_the_root_and_the_operator_to_the_one_broker_that_has_it(
    action: str, result: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = {("broker-a", SHOW): UNKNOWN, ("broker-b", SHOW): body(transaction(4))}
    code, cluster = run(answers, action, "ID4", "--output", "json", groups=2)
    assert code == 0
    assert json.loads(capsys.readouterr().out) == {"transaction": "ID4", "result": result}
    assert cluster.asked("broker-a", SETTLE) == []
    (asked,) = cluster.asked("broker-b", SETTLE)
    assert (asked.ext["id"], asked.ext["action"]) == ("4", action)
    assert asked.ext["operator"]


@pytest.mark.shows("tx show --broker", "tx commit --broker", "tx rollback --broker", "tx rearm --broker")
@pytest.mark.parametrize("command", ["show", "commit", "rollback", "rearm"])
def test_a_root_that_several_brokers_have_needs_a_name(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    answers = {(name, SHOW): body(transaction(4)) for name in ("broker-a", "broker-b")}
    code, cluster = run(answers, command, "4", groups=2)
    assert code == 2
    assert "broker-a, broker-b" in capsys.readouterr().err
    assert not any(command.code == SETTLE for _, command in cluster.received)
    code, cluster = run(answers, command, "4", "--broker", "broker-b", groups=2)
    assert code == 0
    assert len(cluster.asked("broker-b", SETTLE)) == (command != "show")


def test_what_nobody_knows_or_the_broker_refuses_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run({("broker-a", SHOW): UNKNOWN}, "commit", "ID9")[0] == 1
    assert "no transaction ID9" in capsys.readouterr().err
    refused = refuse(ResponseCode.TRANSACTION_SHOULD_ROLLBACK, "was rolled back before")
    answers = {("broker-a", SHOW): body(transaction(4)), ("broker-a", SETTLE): refused}
    assert run(answers, "commit", "ID4")[0] == 1
    assert "was rolled back before" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [("ls", "--group", "a b"), ("ls", "--topic", "a b")])
def test_what_cannot_be_meant_is_refused_before_anybody_is_asked(arguments: tuple[str, ...]) -> None:
    code, cluster = run({}, *arguments)
    assert code == 2
    assert cluster.received == []
