"""Servers in processes of their own with few descriptors, and more connections than they can have."""

from __future__ import annotations

import contextlib
import socket
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from testkit.patience import HANG_S
from testkit.process import GantryProcess
from testkit.rawclient import SEND, RawClient, send_fields

FILES = 256
CONNECTIONS = 300
VISITS = 30  # more than the eight that an HTTP door has with so few files
SEGMENT_BYTES = 1 << 20
BODY_BYTES = 200 << 10
MESSAGES = 100  # twenty segments
HALF_A_REQUEST = b"GET /metrics HTTP/1.1\r\nHost: x\r\n"
ROUTE = 105
_QUEUE = 0


def limited(*command: str) -> list[str]:
    """A command that may open few files, and cannot raise that."""
    return ["sh", "-c", f'ulimit -n {FILES}; exec "$0" "$@"', sys.executable, "-m", "gantry.cli.main", *command]


@contextlib.contextmanager
def silent(address: tuple[str, int], count: int, said: bytes = b"") -> Iterator[list[socket.socket]]:
    """So many connections that stay; some of them will be closed by the other side."""
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(count):
            one = stack.enter_context(socket.create_connection(address, 60.0))
            with contextlib.suppress(ConnectionError):
                one.sendall(said)
            found.append(one)
        yield found


def are_closed(sockets: list[socket.socket]) -> int:
    """How many of them the other side has closed by now."""
    count = 0
    for one in sockets:
        one.setblocking(False)
        try:
            count += one.recv(1) == b""
        except BlockingIOError:
            pass
        except ConnectionError:
            count += 1
    return count


def page(address: tuple[str, int], path: str) -> str:
    with urllib.request.urlopen("http://{}:{}{}".format(*address, path), timeout=HANG_S) as answer:
        text: bytes = answer.read()
    return text.decode()


def value(address: tuple[str, int], metric: str) -> float:
    """One number of /metrics."""
    found = [line.split()[-1] for line in page(address, "/metrics").splitlines() if line.startswith(metric + " ")]
    return float(found[0])


def test_hundreds_of_silent_connections_do_not_keep_a_store_from_its_next_segments(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    sizes = {"store.segment_bytes": str(SEGMENT_BYTES), "messages.body_bytes_max": str(SEGMENT_BYTES // 4)}
    config = {**sizes, "store.flush": "SYNC_FLUSH"}
    bodies = [b"%04d" % number + bytes(BODY_BYTES) for number in range(MESSAGES)]
    with GantryProcess(folder, config, command=limited("standalone", "--data", str(folder))) as process:
        http = process.addresses["http"]
        with RawClient(process.broker) as client:
            assert client.call(*_send(bodies[0])).code == 0
            with contextlib.ExitStack() as stack:
                kept = stack.enter_context(silent(process.broker, CONNECTIONS))
                stack.enter_context(silent(process.addresses["nameserver"], VISITS))
                stack.enter_context(silent(http, VISITS, HALF_A_REQUEST))
                for body in bodies[1:]:
                    assert client.call(*_send(body)).code == 0
                assert value(http, "process_max_fds") == FILES
                assert value(http, "gantry_descriptors_reserved") == FILES / 2
                assert value(http, "gantry_connections_refused_total")  >= CONNECTIONS - FILES / 2
                assert value(http, "process_open_fds") < FILES
                assert are_closed(kept) >= CONNECTIONS - FILES / 2
                assert page(http, "/readyz").startswith("running")
            assert [body for _, body in client.read("T", _QUEUE)] == bodies
            with RawClient(process.addresses["nameserver"]) as asking:
                assert asking.ask(ROUTE, {"topic": "T"}).code == 0
        assert process.stop() == 0
        assert "Too many open files" not in process.stderr()
        assert len(list((folder / "commitlog").iterdir())) >= MESSAGES * BODY_BYTES // SEGMENT_BYTES


def test_a_name_server_answers_again_after_more_connections_than_it_may_have(tmp_path: Path) -> None:
    command = limited("nameserver", "--nameserver-port", "0", "--bind", "127.0.0.1", "--http-port", "0")
    with GantryProcess(tmp_path / "names", command=command) as process:
        names, http = process.addresses["nameserver"], process.addresses["http"]
        with silent(names, CONNECTIONS), silent(http, VISITS, HALF_A_REQUEST):
            assert page(http, "/healthz") == "0 brokers\n"
        deadline = time.monotonic() + HANG_S
        while not is_served(names):
            assert time.monotonic() < deadline, "closed connections still count"
        assert process.stop() == 0


def is_served(names: str) -> bool:
    """Whether the name server takes a connection: it learns one after the other that earlier ones are closed."""
    with contextlib.suppress(ConnectionError), RawClient(names) as client:
        return client.call(ROUTE, {"topic": "T"}).code == 17
    return False


def _send(body: bytes) -> tuple[int, dict[str, str], bytes]:
    return SEND, send_fields("T", _QUEUE), body
