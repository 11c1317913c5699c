"""Clients of HTTP queues that sign, that do not, and that do what no client should."""

from __future__ import annotations

import base64
import hashlib
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from email.utils import formatdate
from pathlib import Path

import pytest

from testkit.mnscalls import MnsCaller
from testkit.patience import HANG_S
from testkit.ports import free_port
from testkit.process import GantryProcess

SEND = "<Message><MessageBody>x</MessageBody></Message>"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GantryProcess]:
    with GantryProcess(tmp_path_factory.mktemp("clients") / "store") as process:
        yield process


def server(folder: Path, cluster: GantryProcess, *flags: str, wait: bool = True) -> GantryProcess:
    """`gantry queues` in front of the cluster."""
    folder.mkdir(exist_ok=True)
    host, port = cluster.addresses["nameserver"]
    command = [sys.executable, "-m", "gantry.cli.main", "queues", "--namesrv", f"{host}:{port}", "--queues-port", "0"]
    return GantryProcess(folder / "queues", command=[*command, "--http-port", "0", *flags], wait=wait)


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    path.write_text("# who may call\nalice wonderland-secret\nbob  builder-secret\n")
    return path


@pytest.fixture
def signed(tmp_path: Path, cluster: GantryProcess, users: Path) -> Iterator[GantryProcess]:
    with server(tmp_path, cluster, "--queues-users", str(users), "--bind", "127.0.0.1") as process:
        yield process


@pytest.fixture(scope="module")
def open_to_all(tmp_path_factory: pytest.TempPathFactory, cluster: GantryProcess) -> Iterator[GantryProcess]:
    with server(tmp_path_factory.mktemp("open"), cluster) as process:
        yield process


def test_only_signed_calls_of_known_users_are_served(signed: GantryProcess) -> None:
    address = signed.addresses["queues"]
    with MnsCaller(address, "alice", "wonderland-secret") as alice:
        assert alice.put("signed").status in (201, 204)
        assert alice.send("signed", "x").status == 201
        target = "/queues/signed/messages?waitseconds=0&numOfMessages=4"
        assert alice.call("GET", target).status == 200, "the query is signed as it is sent"
        escaped = alice.call("GET", "/queues/%73igned/messages?peekonly=true")
        assert escaped.code == "MessageNotExist", "and the path before it is decoded"
        old, new = formatdate(time.time() - 16 * 60, usegmt=True), formatdate(time.time() + 16 * 60, usegmt=True)
        for date in (old, new):
            late = alice.call("GET", "/queues", headers={"Date": date})
            assert (late.status, late.code) == (408, "TimeExpired")
        near = formatdate(time.time() - 14 * 60, usegmt=True)
        assert alice.call("GET", "/queues", headers={"Date": near}).status == 200
        for date in ("yesterday", "", "Fri, 99 Nov 2026 12:00:00 GMT"):
            assert alice.call("GET", "/queues", headers={"Date": date}).code == "InvalidDateHeader"
    with MnsCaller(address, "alice", "another-secret") as wrong:
        assert (wrong.put("signed").status, wrong.put("signed").code) == (403, "SignatureDoesNotMatch")
    with MnsCaller(address, "carol", "x") as unknown:
        assert (unknown.put("signed").status, unknown.put("signed").code) == (403, "AccessIDAuthError")
    with MnsCaller(address) as unsigned:
        assert (unsigned.put("signed").status, unsigned.put("signed").code) == (403, "AccessDenied")


def test_nothing_of_a_call_that_is_not_signed_is_read_or_done(signed: GantryProcess) -> None:
    with closing(_connection(signed)) as client:
        head = "POST /queues/signed/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n"
        client.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
        answer = _until_closed(client)
    assert answer.startswith(b"HTTP/1.1 403 ") and b"100 Continue" not in answer


def test_a_digest_is_taken_as_bytes_and_as_hex_digits(signed: GantryProcess) -> None:
    digest = hashlib.md5(SEND.encode())
    forms = [base64.b64encode(digest.digest()).decode(), base64.b64encode(digest.hexdigest().encode()).decode()]
    with MnsCaller(signed.addresses["queues"], "bob", "builder-secret") as bob:
        bob.put("digest")
        for form in forms:
            assert bob.call("POST", "/queues/digest/messages", SEND, {"Content-MD5": form}).status == 201
        other = base64.b64encode(hashlib.md5(b"other").digest()).decode()
        for form in (other, "no base64"):
            refused = bob.call("POST", "/queues/digest/messages", SEND, {"Content-MD5": form})
            assert (refused.status, refused.code) == (400, "InvalidDigest")
        assert len(bob.receive("digest", count=16).texts("MessageBody")) == 2


def test_users_change_while_the_server_runs_and_a_slip_changes_nothing(signed: GantryProcess, users: Path) -> None:
    with MnsCaller(signed.addresses["queues"], "carol", "new-secret") as carol, MnsCaller(
        signed.addresses["queues"], "alice", "wonderland-secret"
    ) as alice:
        assert carol.call("GET", "/queues").status == 403
        users.write_text("carol\n")
        _until(lambda: "line 1" in signed.stderr())
        assert alice.call("GET", "/queues").status == 200, "the users are those of before"
        fresh = users.with_name("fresh")
        fresh.write_text("carol new-secret\n")
        os.replace(fresh, users)
        _until(lambda: carol.call("GET", "/queues").status == 200)
        assert alice.call("GET", "/queues").status == 403


@pytest.mark.shows("queues --bind", "queues --queues-users")
def test_without_users_only_this_machine_is_served_and_it_says_so(
    tmp_path: Path, cluster: GantryProcess, open_to_all: GantryProcess
) -> None:
    assert open_to_all.addresses["queues"][0] == "127.0.0.1"
    assert "only this machine is served" in open_to_all.stderr()
    with server(tmp_path, cluster, "--bind", "0.0.0.0", wait=False) as refused:
        assert refused.wait() == 2 and "--queues-users" in refused.stderr()
    empty = tmp_path / "empty"
    empty.write_text("# nobody\n")
    with server(tmp_path, cluster, "--queues-users", str(empty), wait=False) as refused:
        assert refused.wait() == 2 and "0 users" in refused.stderr()


@pytest.mark.shows("queues --namesrv", "queues --queues-port", "queues --http-port", "queues --handle-key-file")
def test_the_flags_of_the_command_say_where_it_is_and_what_signs(tmp_path: Path, cluster: GantryProcess) -> None:
    host, port = cluster.addresses["nameserver"]
    gantry = [sys.executable, "-m", "gantry.cli.main", "queues", "--namesrv", f"{host}:{port}"]
    free = free_port()
    flags = ["--queues-port", str(free), "--http-port", "-1"]
    keys = tmp_path / "keys"
    keys.write_text("0123456789abcdef0123456789abcdef\n")
    with GantryProcess(tmp_path / "one", command=[*gantry, *flags, "--handle-key-file", str(keys)]) as process:
        assert process.addresses == {"queues": ("127.0.0.1", free)}
        with GantryProcess(tmp_path / "two", command=[*gantry, *flags], wait=False) as second:
            assert second.wait() == 2 and "--queues-port" in second.stderr(), "the port is taken"
    keys.write_text("short\n")
    with GantryProcess(tmp_path / "three", command=[*gantry, "--handle-key-file", str(keys)], wait=False) as third:
        assert third.wait() == 2 and "openssl rand" in third.stderr()


@pytest.mark.shows("standalone --queues-port", "standalone --queues-users")
def test_standalone_serves_the_users_of_a_file(tmp_path: Path, users: Path) -> None:
    folder = tmp_path / "store"
    command = [sys.executable, "-m", "gantry.cli.main", "standalone", "--data", str(folder)]
    config = {"standalone.queues_port": "17"}  # the flag counts
    command += ["--queues-port", "0", "--queues-users", str(users)]
    with GantryProcess(folder, config, command=command) as process:
        address = process.addresses["queues"]
        assert address[1] > 1024
        with MnsCaller(address, "alice", "wonderland-secret") as alice, MnsCaller(address) as nobody:
            assert alice.put("own").status == 201
            assert nobody.put("own").status == 403


def test_a_client_that_expects_100_gets_it_before_it_sends_its_body(open_to_all: GantryProcess) -> None:
    with MnsCaller(open_to_all.addresses["queues"]) as mns:
        mns.put("expect")
    with closing(_connection(open_to_all)) as client:
        head = f"POST /queues/expect/messages HTTP/1.1\r\nHost: x\r\nContent-Length: {len(SEND)}\r\n"
        client.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
        assert client.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(SEND.encode())
        assert client.recv(1000).startswith(b"HTTP/1.1 201 ")


def test_calls_in_a_pipeline_and_in_pieces_are_answered_in_order(open_to_all: GantryProcess) -> None:
    with closing(_connection(open_to_all)) as client:
        calls = b"GET /queues/none-%d HTTP/1.1\r\nHost: x\r\n\r\n"
        whole = b"".join(calls % number for number in range(20))
        for start in range(0, len(whole), 7):
            client.sendall(whole[start : start + 7])
        found = b""
        while found.count(b"</Error>") < 20:
            found += client.recv(65536)
    places = [found.index(b"none-%d does" % number) for number in range(20)]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("no http at all\r\n\r\n", 400),
        ("GET /queues HTTP/1.1\r\nHost x\r\n\r\n", 400),
        ("GET /queues HTTP/1.1\r\nHost: x\r\nLong: " + "x" * 9000 + "\r\n\r\n", 400),
        ("GET /queues HTTP/1.1\r\nHost: x\r\n" + "".join(f"h{n}: x\r\n" for n in range(200)) + "\r\n", 400),
        ("GET /" + "q" * 9000 + " HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        ("POST /queues/q/messages HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
        ("PUT /queues/large HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n", 413),
        ("PUT /queues/q HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnot hex\r\n", 400),
        ("PUT /queues/q HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc", 400),
    ],
    ids=["no-http", "no-colon", "long-header", "many-headers", "long-target", "negative", "huge", "no-chunks",
         "two-lengths"],
)  # fmt: skip
def test_what_cannot_be_parsed_is_answered_with_an_error_and_ends(
    open_to_all: GantryProcess, text: str, status: int
) -> None:
    with closing(_connection(open_to_all)) as client:
        client.sendall(text.encode())
        answer = _until_closed(client)
    assert int(answer[9:12]) == status, answer[:200]
    assert b"<Error " in answer and b"x-mns-request-id" in answer and b"Traceback" not in answer
    with MnsCaller(open_to_all.addresses["queues"]) as mns:
        assert mns.call("GET", "/queues").status == 200, "others are served"


def test_a_body_that_is_shorter_than_its_length_does_nothing(open_to_all: GantryProcess) -> None:
    with MnsCaller(open_to_all.addresses["queues"]) as mns:
        mns.put("short")
        with closing(_connection(open_to_all)) as client:
            head = f"POST /queues/short/messages HTTP/1.1\r\nHost: x\r\nContent-Length: {len(SEND) + 1}\r\n\r\n"
            client.sendall((head + SEND).encode())
            client.shutdown(socket.SHUT_WR)
            _until_closed(client)
        assert mns.receive("short", wait_s=1).code == "MessageNotExist"


def test_clients_that_do_not_finish_their_request_are_closed(open_to_all: GantryProcess) -> None:
    silent, slow = ([_connection(open_to_all) for _ in range(10)] for _ in range(2))
    try:
        for client in slow:
            client.sendall(b"GET /queues HTTP/1.1\r\nHost: x\r\n")
        waiting = {*silent, *slow}
        deadline, sent = time.monotonic() + HANG_S, 0
        while waiting:
            assert time.monotonic() < deadline, f"{len(waiting)} are open still"
            readable = select.select(list(waiting), [], [], 2.0)[0]
            for client in readable:
                with suppress(ConnectionResetError):
                    assert not client.recv(1000), "closed, not answered"
            waiting -= set(readable)
            for client in waiting & set(slow) if sent < 20 else ():
                with suppress(OSError):
                    client.sendall(b"x-slow: x\r\n")  # a header now and then does not help
            sent += 1
    finally:
        for client in (*silent, *slow):
            client.close()


def test_a_poll_that_its_client_left_takes_no_message(open_to_all: GantryProcess) -> None:
    with MnsCaller(open_to_all.addresses["queues"]) as mns:
        mns.put("left", VisibilityTimeout=600)
        for _ in range(10):
            with closing(_connection(open_to_all)) as client:
                client.sendall(b"GET /queues/left/messages?waitseconds=30 HTTP/1.1\r\nHost: x\r\n\r\n")
                _until(lambda: _metric(open_to_all, "gantry_queues_receives_held") == 1)
            _until(lambda: _metric(open_to_all, "gantry_queues_receives_held") == 0)
        mns.send("left", "for those who stay")
        found = mns.receive("left", wait_s=20)
        assert (found.text("MessageBody"), found.text("DequeueCount")) == ("for those who stay", "1")


def test_a_server_that_ends_answers_its_polls_and_handles_go_on_elsewhere(
    tmp_path: Path, cluster: GantryProcess
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("0123456789abcdef0123456789abcdef\n")
    with server(tmp_path / "a", cluster, "--handle-key-file", str(keys)) as first, server(
        tmp_path / "b", cluster, "--handle-key-file", str(keys)
    ) as second:
        with MnsCaller(first.addresses["queues"]) as mns:
            mns.put("drain", VisibilityTimeout=600)
            mns.send("drain", "leased"), mns.send("drain", "delayed", DelaySeconds=3600)
            handle = mns.receive("drain").text("ReceiptHandle")
        with closing(_connection(first)) as client:
            client.sendall(b"GET /queues/drain/messages?waitseconds=30 HTTP/1.1\r\nHost: x\r\n\r\n")
            _until(lambda: _metric(first, "gantry_queues_receives_held") == 1)
            assert first.stop() == 0
            answer = _until_closed(client)
        assert answer.startswith(b"HTTP/1.1 404 ") and b"MessageNotExist" in answer and b"Connection: close" in answer
        with MnsCaller(second.addresses["queues"]) as mns:
            assert mns.receive("drain").code == "MessageNotExist", "leases stay"
            assert mns.delete("drain", handle).status == 204
            mns.send("drain", "killed")
            handle = mns.receive("drain").text("ReceiptHandle")
            second.kill()
    with server(tmp_path / "c", cluster, "--handle-key-file", str(keys)) as third, MnsCaller(
        third.addresses["queues"]
    ) as mns:
        assert mns.delete("drain", handle).status == 204, "after kill -9 of the server"


def test_of_two_servers_that_create_a_queue_together_both_mean_the_same_one(
    tmp_path: Path, cluster: GantryProcess, open_to_all: GantryProcess
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("0123456789abcdef0123456789abcdef\n")
    flags = ("--handle-key-file", str(keys))
    with server(tmp_path / "a", cluster, *flags) as first, server(tmp_path / "b", cluster, *flags) as second:
        addresses = [first.addresses["queues"], second.addresses["queues"]]
        for round_ in range(5):
            start, answers = threading.Barrier(6), list[int]()

            callers = [
                threading.Thread(target=_create, args=(addresses[number % 2], f"race-{round_}", start, answers))
                for number in range(6)
            ]
            for one in callers:
                one.start()
            for one in callers:
                one.join(HANG_S)
            assert set(answers) <= {201, 204} and 201 in answers and len(answers) == 6
            with MnsCaller(addresses[0]) as mns, MnsCaller(addresses[1]) as other:
                mns.send(f"race-{round_}", "x")
                handle = other.receive(f"race-{round_}", wait_s=10).text("ReceiptHandle")
                assert mns.delete(f"race-{round_}", handle).status == 204, "both have one incarnation"


def _create(address: tuple[str, int], name: str, start: threading.Barrier, answers: list[int]) -> None:
    with MnsCaller(address) as mns:
        start.wait(HANG_S)
        answers.append(mns.put(name).status)


def test_what_is_sent_to_a_queue_made_again_is_received_also_by_who_polls_the_former_one(
    tmp_path: Path, cluster: GantryProcess, open_to_all: GantryProcess
) -> None:
    with server(tmp_path, cluster) as second, MnsCaller(open_to_all.addresses["queues"]) as mns:
        mns.put("again", VisibilityTimeout=1)
        found: list[str] = []
        ended = threading.Event()

        def poll() -> None:
            with MnsCaller(second.addresses["queues"]) as other:
                while not ended.is_set():
                    found.extend(other.receive("again", wait_s=20).texts("MessageBody"))

        polling = threading.Thread(target=poll)
        polling.start()
        try:
            _until(lambda: _metric(second, "gantry_queues_receives_held") == 1)
            for number in range(3):
                assert mns.call("DELETE", "/queues/again").status == 204
                assert mns.put("again", VisibilityTimeout=1).status == 201
                assert mns.send("again", f"new {number}").status == 201
                _until(lambda wanted=f"new {number}": wanted in found)  # type: ignore[misc]
        finally:
            ended.set()
            mns.send("again", "end")
            polling.join(HANG_S)


def test_metrics_count_calls_and_healthz_says_it_serves(open_to_all: GantryProcess) -> None:
    with MnsCaller(open_to_all.addresses["queues"]) as mns:
        mns.put("metrics")
        mns.send("metrics", "x"), mns.receive("metrics"), mns.receive("metrics")
    text = _page(open_to_all, "metrics")
    assert 'gantry_queues_requests_total{call="POST queues messages",status="201",code=""}' in text
    assert 'gantry_queues_requests_total{call="GET queues messages",status="404",code="MessageNotExist"}' in text
    assert "receives wait" in _page(open_to_all, "healthz")
    _until(lambda: "a broker answers" in _page(open_to_all, "readyz"))


def _page(process: GantryProcess, name: str) -> str:
    with closing(socket.create_connection(process.addresses["http"], timeout=HANG_S)) as client:
        client.sendall(f"GET /{name} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        return _until_closed(client).decode()


def _metric(process: GantryProcess, name: str) -> int:
    lines = [line for line in _page(process, "metrics").splitlines() if line.startswith(f"{name} ")]
    return int(lines[0].split()[1])


def _connection(process: GantryProcess) -> socket.socket:
    return socket.create_connection(process.addresses["queues"], timeout=HANG_S)


def _until_closed(client: socket.socket) -> bytes:
    found = b""
    while True:
        try:
            piece = client.recv(65536)
        except ConnectionResetError:
            return found
        if not piece:
            return found
        found += piece


def _until(happens: Callable[[], bool]) -> None:
    deadline, pause = time.monotonic() + HANG_S, threading.Event()
    while not happens():
        assert time.monotonic() < deadline, "it does not happen"
        pause.wait(0.05)
