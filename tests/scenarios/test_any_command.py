"""What holds for every command that asks a cluster: --namesrv, --timeout, --output, and what its exit code says."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator

import pytest

from testkit.commandline import CALLS, call, name_server, options, run
from testkit.process import GantryProcess

NOWHERE = "127.0.0.1:1"
ELSEWHERE = "127.0.0.1:2"
# They name one thing, and there is none: what they print is shown where there is one (tests/unit/cli/test_tx.py,
# tests/scenarios/test_delay_commands.py).
OF_ONE = {"tx show", "tx commit", "tx rollback", "tx rearm", "delay cancel"}
LINES = {"consume", "tail", "peek"}  # an object a line, not one document


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with GantryProcess(tmp_path_factory.mktemp("any") / "data") as process:
        host, port = process.addresses["nameserver"]
        with name_server(f"{host}:{port}"):
            yield


@pytest.fixture(scope="module")
def silent() -> Iterator[str]:
    """The address of a name server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
        host, port = server.getsockname()
        yield f"{host}:{port}"


@pytest.mark.parametrize("command", CALLS)
def test_a_name_server_is_asked_that_is_named_and_none_there_is_exit_code_3(command: str) -> None:
    with name_server(NOWHERE):
        done = run(*call(command), "--namesrv", ELSEWHERE, "--timeout", "0.3")
    assert done.code == 3, done
    assert ELSEWHERE in done.err and NOWHERE not in done.err


@pytest.mark.parametrize("command", CALLS)
def test_no_answer_is_waited_for_longer_than_told_and_is_exit_code_3(command: str, silent: str) -> None:
    done = run(*call(command), "--namesrv", silent, "--timeout", "0.05")
    assert done.code == 3, done
    waited = re.search(r"(?:within|the time of) ([\d.e-]+) s", done.err)
    assert waited is not None and float(waited[1]) <= 0.05, done.err


@pytest.mark.parametrize("command", sorted(CALLS.keys() - OF_ONE))
def test_the_output_is_for_people_or_for_programs(command: str, cluster: None) -> None:
    topic, group = command.replace(" ", "-"), f"g-{command.replace(' ', '-')}"
    if "{topic}" in CALLS[command] and command != "topic create":
        assert run("produce", topic, "one", "two", "--keys", "k").code == 0
    if "{group}" in CALLS[command] and command not in ("group create", "consume"):
        assert run("group", "create", group).code == 0
    for_people = run(*call(command, topic, group), "--output", "table")
    if command in ("topic delete", "group delete"):
        assert run(command.split(" ")[0], "create", topic if "topic" in command else group).code == 0
    for_programs = run(*call(command, topic, group), "--output", "json")
    assert for_people.code == for_programs.code == 0, (for_people, for_programs)
    for document in for_programs.out.splitlines() if command in LINES else [for_programs.out]:
        json.loads(document)
    with pytest.raises(json.JSONDecodeError):
        json.loads(for_people.out)


@pytest.mark.parametrize("command", sorted(OF_ONE))
def test_one_that_is_not_there_is_exit_code_1(command: str, cluster: None) -> None:
    done = run(*call(command))
    assert (done.code, done.out) == (1, "") and "ID" in done.err


NUMBERS = {name: action for name, action in options().items() if hasattr(action.type, "low")}


@pytest.mark.parametrize("option", NUMBERS)
def test_a_number_out_of_bounds_is_wrong_use(option: str) -> None:
    kind = NUMBERS[option].type
    command, _, flag = option.rpartition(" ")
    least, most = kind.low, kind.high  # type: ignore[union-attr]
    beyond = [str(least - 1), str(most * 2), "nan", "inf", "-inf", "", "many", "9" * 5000]
    beyond += [str(least)] if getattr(kind, "is_above", False) else []
    for text in beyond:
        done = run(*command.split(" "), f"{flag}={text}")
        assert done.code == 2 and f"argument {flag}: " in done.err and "expected a" in done.err, (text, done)
