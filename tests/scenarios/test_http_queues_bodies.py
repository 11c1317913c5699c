"""Requests to HTTP queues with a strange head, and with many bytes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from testkit.mnscalls import MnsCaller
from testkit.patience import HANG_S
from testkit.process import GantryProcess


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GantryProcess]:
    with GantryProcess(tmp_path_factory.mktemp("bodies") / "store", {"standalone.queues_port": "0"}) as found:
        yield found


def test_a_host_that_is_no_text_is_answered(process: GantryProcess) -> None:
    with closing(socket.create_connection(process.addresses["queues"], HANG_S)) as client:
        client.sendall(b"GET /queues/nobody HTTP/1.1\r\nHost: \xff\xfe\r\nConnection: close\r\n\r\n")
        answer = client.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 404 ") and b"QueueNotExist" in answer


def test_bodies_are_counted_for_their_calls_only(process: GantryProcess) -> None:
    wrong = b"<Message>" + b"x" * (4_000_000)
    with MnsCaller(process.addresses["queues"]) as caller:
        caller.put("bodies")
        for _ in range(70):  # 280 MB of them, one after the other
            refused = caller.call("POST", "/queues/bodies/messages", wrong)
            assert refused.code == "MalformedXML"
