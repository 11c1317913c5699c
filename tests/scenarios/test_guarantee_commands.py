"""`gantry guarantee`: each subcommand on real tables, for people and for programs, and the process that resends."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import json
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from gantry.guarantee.metrics import FAMILIES
from testkit.clusterplay import running_cluster
from testkit.commandline import Done, run
from testkit.guaranteeshop import Stubs
from testkit.mailserver import hook_server, mail_server
from testkit.patience import HANG_S
from testkit.process import GantryProcess
from testkit.turning import until


@pytest.fixture
def stubs(tmp_path: Path) -> Stubs:
    made = Stubs(tmp_path / "shop.db")
    made.declare("billing", "packing")
    made.write("m1", "m2")
    return made


def call(stubs: Stubs, *words: str) -> Done:
    return run("guarantee", *words, "--database", stubs.address)


def told(stubs: Stubs, *words: str) -> list[dict[str, object]]:
    done = call(stubs, *words, "--output", "json")
    assert done.code == 0, done.err
    found: list[dict[str, object]] = json.loads(done.out)
    return found


@pytest.mark.shows("guarantee create --fallback-group")
def test_create_makes_the_tables_and_may_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"sqlite:///{tmp_path}/new shop.db"
    done = run("guarantee", "create", "--database", address, "--fallback-group", "packing")
    assert (done.code, done.out) == (0, "tables/guarantee ready, 0 messages of version 1 moved\n")
    again = run("guarantee", "create", "--database", address, "--output", "json")
    assert json.loads(again.out)["tables"] == "guarantee"
    monkeypatch.setenv("GANTRY_GUARANTEE_DATABASE", address)
    assert run("guarantee", "groups").err == "no group is declared\n"
    (tmp_path / "address").write_text(address)
    assert run("guarantee", "groups", "--database", f"@{tmp_path}/address").code == 0


@pytest.mark.shows(
    "guarantee declare --topic",
    "guarantee declare --group", "guarantee declare --resend-by", "guarantee declare --by",
    "guarantee undeclare --topic",
    "guarantee undeclare --group",
)  # fmt: skip
def test_groups_are_declared_and_undeclared(stubs: Stubs) -> None:
    words = ("--topic", "Returns", "--group", "packing")
    done = call(stubs, "declare", *words, "--resend-by", "pop", "--by", "alice")
    assert done.out == "group/packing declared for Returns\n"
    wanted = {"topic": "Returns", "consumer_group": "packing", "resend_by": "pop"}
    assert wanted in told(stubs, "groups")
    assert ("alice",) in stubs.ask("SELECT changed_by FROM guarantee_group")
    assert call(stubs, "undeclare", *words, "--output", "json").code == 0
    gone = call(stubs, "undeclare", *words)
    assert (gone.code, gone.err) == (1, "gantry: group packing is not there, or settled already\n")
    assert call(stubs, "declare", "--topic", "T" * 256, "--group", "g", "--output", "json").code == 2


@pytest.mark.shows(
    "guarantee list --group", "guarantee list --count", "guarantee list --resends-max", "guarantee list --stuck-after",
    "guarantee list --overdue-after",
)  # fmt: skip
def test_status_and_lists_show_what_is_open_and_what_a_person_has_to_look_at(stubs: Stubs) -> None:
    stubs.write("named", groups=("auditing",))  # a group that is not declared
    stubs.log("m1", "packing", "refused")
    stubs.place("m2", 100)
    stubs.do("UPDATE guarantee_delivery SET resends = 3 WHERE message_id = 'named'")
    rows = {row["consumer_group"]: row for row in told(stubs, "status")}
    assert rows["packing"]["open"] == rows["packing"]["due"] == 2 and rows["auditing"]["open"] == 1
    assert rows["packing"]["oldest"] == "1970-01-01T00:00:01+00:00"
    assert "CONSUMER_GROUP" in call(stubs, "status").out

    def ids(*words: str) -> list[object]:
        return [row["message_id"] for row in told(stubs, "list", *words)]

    assert ids("open", "--group", "packing") == ["m1", "m2"]
    assert len(ids("open", "--count", "3")) == 3
    assert ids("exhausted", "--resends-max", "3") == ["named"] and ids("exhausted") == []
    assert ids("stuck", "--stuck-after", "60") == ["m1"]
    assert ids("overdue", "--overdue-after", "60") == ["named", "m1", "m2", "m2"]  # two of them without a place
    stubs.do(f"UPDATE guarantee_log SET received_at_ms = {time.time_ns() // 1_000_000}")
    assert ids("stuck", "--stuck-after", "86400") == []
    assert call(stubs, "list", "closed").err == "nothing is closed\n"
    assert call(stubs, "list", "open").out.splitlines()[0].split()[0] == "MESSAGE_ID"
    stubs.do("UPDATE guarantee_log SET effect = 'processing', owner = 'w1', owner_until_ms = 5")
    assert ids("unsettled", "--group", "packing") == ["m1"]
    stubs.log("x1", "elsewhere")  # of a group that is not declared, and has no stubs here
    stubs.do("UPDATE guarantee_log SET effect = 'processing', owner_until_ms = 5 WHERE message_id = 'x1'")
    assert sorted(map(str, ids("unsettled"))) == ["m1", "x1"]


@pytest.mark.shows(
    "guarantee rearm --group", "guarantee rearm --by", "guarantee rearm --had-no-effect",
    "guarantee close --group", "guarantee close --by",
    "guarantee confirm --group",
    "guarantee confirm --by",
)  # fmt: skip
def test_a_person_settles_a_message_and_the_tables_say_who(stubs: Stubs) -> None:
    def delivery() -> dict[str, object]:
        document = json.loads(call(stubs, "show", "m1", "--output", "json").out)
        found: dict[str, object] = {row["consumer_group"]: row for row in document["deliveries"]}["packing"]
        return found

    on = ("m1", "--group", "packing")
    assert call(stubs, "close", *on, "--by", "alice").out == "message/m1 closed for packing\n"
    assert (delivery()["state"], delivery()["changed_by"]) == ("closed", "alice")
    assert call(stubs, "close", *on, "--output", "json").code == 1  # settled already
    assert call(stubs, "rearm", *on).code == 0
    assert (delivery()["state"], delivery()["changed_by"]) == ("open", getpass.getuser())
    stubs.log("m1", "packing", "unknown")
    assert call(stubs, "rearm", *on, "--by", "bob", "--output", "json").code == 0
    assert stubs.ask("SELECT COUNT(*) FROM guarantee_log") == [(1,)]  # the hook is still asked
    assert call(stubs, "rearm", *on, "--had-no-effect").code == 0
    assert stubs.ask("SELECT COUNT(*) FROM guarantee_log") == [(0,)]
    assert json.loads(call(stubs, "confirm", *on, "--by", "eve", "--output", "json").out)["result"]
    assert (delivery()["state"], delivery()["changed_by"]) == ("confirmed", "eve")
    stubs.log("m1", "packing", "refused")
    assert call(stubs, "rearm", *on).code == 1
    assert stubs.ask("SELECT COUNT(*) FROM guarantee_log") == [(1,)]  # nothing was deleted for nothing
    text = call(stubs, "show", "m1").out
    assert "billing" in text and "refused" in text and "order-m1" in text
    assert call(stubs, "show", "nobody").code == 1
    assert call(stubs, "close", *on, "--by", "x" * 256).code == 2


@pytest.mark.shows("guarantee forget --older-than")
def test_forget_deletes_what_is_finished_and_old(stubs: Stubs) -> None:
    stubs.do("UPDATE guarantee_delivery SET state = 'confirmed' WHERE message_id = 'm1'")
    stubs.log("m1", "packing", offset=3)
    stubs.log("m2", "packing", offset=9)
    for number in range(3):  # of a group that is not declared, and has no stubs here
        stubs.log(f"x{number}", "elsewhere", offset=number)
    assert told(stubs, "forget", "--older-than", "36000") == [{"log_rows": 0, "messages": 0}]
    assert told(stubs, "forget", "--older-than", "1") == [{"log_rows": 3, "messages": 1}]
    assert stubs.ask("SELECT message_id FROM guarantee_stub") == [("m2",)]


@pytest.mark.parametrize(
    ("address", "code", "says"),
    [
        ("", 2, "--database is missing"),
        ("oracle://gantry:token@db/shop", 2, "'oracle' names no kind of database"),
        ("gantry:token@db/shop", 2, "the address names no kind of database"),
        ("@/nowhere", 2, "cannot be read"),
        ("sqlite:////nowhere/shop.db", 1, "unable to open database file"),
        ("postgresql://gantry:token@127.0.0.1:1/shop", 1, "the database: OperationalError"),
        ("mysql://gantry:token@127.0.0.1:1/shop", 1, "the database: OperationalError"),
    ],
)
def test_a_wrong_address_is_an_error_without_its_password(
    address: str, code: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GANTRY_GUARANTEE_DATABASE", raising=False)
    done = run("guarantee", "status", "--database", address)
    assert done.code == code and says in done.err and "token" not in done.err and "Traceback" not in done.err


def test_tables_that_are_not_there_are_not_made_by_looking(tmp_path: Path, stubs: Stubs) -> None:
    assert run("guarantee", "status", "--database", f"sqlite:///{tmp_path}/nothing.db").code == 1
    assert not (tmp_path / "nothing.db").exists()
    (tmp_path / "empty.db").touch()
    done = run("guarantee", "status", "--database", f"sqlite:///{tmp_path}/empty.db")
    assert (done.code, "make them with: gantry guarantee create" in done.err) == (1, True)
    stubs.do("UPDATE message_guarantee SET version = 3")
    assert "install a newer one" in call(stubs, "status").err


def test_help_loads_neither_the_client_nor_a_driver() -> None:
    text = "import sys; from gantry.cli.main import main\ntry: main(['guarantee', 'list', '--help'])\n"
    text += "except SystemExit: pass\nnames = 'asyncio.events', 'sqlite3', 'psycopg', 'gantry.client.producer'\n"
    text += "print(*(each for each in names if each in sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stderr.strip() in ("", "asyncio.events")


@pytest.mark.shows(
    "guarantee create --database", "guarantee create --output",
    "guarantee declare --database", "guarantee declare --output",
    "guarantee undeclare --database", "guarantee undeclare --output",
    "guarantee groups --database", "guarantee groups --output",
    "guarantee status --database", "guarantee status --output",
    "guarantee list --database", "guarantee list --output",
    "guarantee show --database", "guarantee show --output",
    "guarantee rearm --database", "guarantee rearm --output",
    "guarantee close --database", "guarantee close --output",
    "guarantee confirm --database", "guarantee confirm --output",
    "guarantee forget --database", "guarantee forget --output",
)  # fmt: skip
def test_each_subcommand_takes_an_address_and_speaks_to_programs(stubs: Stubs) -> None:
    on = ("m1", "--group", "packing")
    of = ("--topic", "Orders", "--group", "packing")
    for words in (
        ("create",), ("undeclare", *of), ("declare", *of), ("groups",), ("status",), ("list", "open"), ("show", "m1"),
        ("close", *on), ("rearm", *on), ("confirm", *on), ("forget", "--older-than", "1"),
    ):  # fmt: skip
        done = run("guarantee", *words, "--database", stubs.address, "--output", "json")
        assert done.code == 0, done.err
        assert json.loads(done.out)


def resend(stubs: Stubs, *more: str) -> list[str]:
    return [sys.executable, "-m", "gantry.cli.main", "guarantee", "resend", "--database", stubs.address, *more]


def fetched(process: GantryProcess, path: str) -> tuple[int, str]:
    host, port = process.addresses["http"]
    try:
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=HANG_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.shows(
    "guarantee resend --database", "guarantee resend --namesrv", "guarantee resend --timeout",
    "guarantee resend --once", "guarantee resend --group", "guarantee resend --backoff", "guarantee resend --backlog",
    "guarantee resend --resends-max", "guarantee resend --stuck-after", "guarantee resend --overdue-after",
    "guarantee resend --output", "guarantee resend --log-format", "guarantee resend --log-level",
    "guarantee resend --mail-server", "guarantee resend --mail-from", "guarantee resend --mail-to",
    "guarantee resend --webhook", "guarantee resend --webhook-secret-file",
)  # fmt: skip
async def test_one_pass_sends_what_is_due_and_tells_people(tmp_path: Path, stubs: Stubs) -> None:
    stubs.log("m2", "packing", "refused")
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef\n")
    async with running_cluster(tmp_path / "brokers") as cluster, mail_server() as post, hook_server() as hook:
        words = resend(
            stubs, "--database", stubs.address, "--namesrv", cluster.nameserver,
            "--timeout", "10", "--once", "--group", "packing", "--backoff",
            "600", "--backlog", "5", "--resends-max", "4", "--stuck-after", "60", "--overdue-after", "60", "--output",
            "json", "--log-format", "json", "--log-level", "warning", "--mail-server", f"smtp://127.0.0.1:{post.port}",
            "--mail-from", "gantry@example.org", "--mail-to", "ops@example.org", "--webhook", hook.url,
            "--webhook-secret-file", str(secret),
        )  # fmt: skip
        process = await asyncio.create_subprocess_exec(*words, stdout=-1, stderr=-1)
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        found = json.loads(out)
        assert (found["sent"], found["told"], found["untold"], found["failed"]) == (1, 1, 0, "")
        assert len(post.mails) == len(hook.posts) == 1
        ((due,),) = stubs.ask("SELECT next_resend_at_ms - changed_at_ms FROM guarantee_delivery WHERE resends = 1")
        assert due == 605_000
        assert b"0123456789abcdef" not in out + err
        hook.answers = [500]
        stubs.do("UPDATE guarantee_delivery SET told_at_ms = NULL, tell_after_ms = 0")
        process = await asyncio.create_subprocess_exec(*words, stdout=-1, stderr=-1)
        out, err = await process.communicate()
        assert (process.returncode, json.loads(out)["untold"]) == (1, 1)


@pytest.mark.shows(
    "guarantee resend --every", "guarantee resend --tell-every", "guarantee resend --bind",
    "guarantee resend --http-port",
)  # fmt: skip
async def test_processes_side_by_side_are_killed_and_stopped_and_each_message_has_one_effect(
    tmp_path: Path, stubs: Stubs
) -> None:
    count = 40
    stubs.write(*(f"n{number:03}" for number in range(count)))
    every = ("--every", "0.3", "--tell-every", "0.3", "--bind", "127.0.0.1", "--http-port", "0", "--backoff", "600")
    async with running_cluster(tmp_path / "brokers") as cluster:
        words = resend(stubs, *every, "--namesrv", cluster.nameserver)

        async def started(name: str) -> GantryProcess:
            process = GantryProcess(tmp_path / name, command=words, wait=False)
            await asyncio.to_thread(process.wait_ready)
            return process

        processes = await asyncio.gather(*(started(f"r{number}") for number in range(3)))
        with contextlib.ExitStack() as stack:
            for process in processes:
                stack.enter_context(process)
            processes[0].popen.kill()
            await until(lambda: stubs.ask("SELECT MIN(resends) FROM guarantee_delivery") == [(1,)])
            status, text = await asyncio.to_thread(fetched, processes[1], "/metrics")
            assert status == 200
            assert {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")} == set(FAMILIES)
            assert 'gantry_guarantee_passes_total{kind="resend",result="good"}' in text
            assert (await asyncio.to_thread(fetched, processes[1], "/readyz"))[0] == 200
            # A newer release migrates the tables: this process touches nothing any more, and says so.
            stubs.do("UPDATE message_guarantee SET version = 3")
            answers: list[tuple[int, str]] = [(200, "")]

            async def asked() -> None:
                while answers[-1][0] == 200:
                    answers.append(await asyncio.to_thread(fetched, processes[1], "/readyz"))

            await asyncio.wait_for(asked(), HANG_S)
            assert answers[-1][0] == 503 and "install a newer one" in answers[-1][1]
            stubs.do("UPDATE message_guarantee SET version = 2")
            processes[1].popen.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(processes[1].popen.wait, HANG_S) == 0
        # Sent once each, by one of the processes: the count of attempts is that of claims.
        assert stubs.ask("SELECT MAX(resends) FROM guarantee_delivery") == [(1,)]
