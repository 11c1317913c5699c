"""A folder with messages that got another time, given to Apache's broker and back: none is lost.

RocketMQ's broker does not know `GANTRY_RETIMED`, so it may deliver such a message at each of its times.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gantry.leaves import properties
from gantry.wire.codes import RequestCode
from interop.conftest import require
from interop.test_pop_folders import Folder
from testkit.patience import HANG_S
from testkit.popplay import TOPIC
from testkit.rawclient import SEND, send_fields

SOON_S, LATER_S, FAR_S = 15, 40, 3_600


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    require("java")
    made = Folder(tmp_path)
    yield made
    made.close("kill")


def sent(folder: Folder, body: bytes, delay_s: int) -> str:
    """Send a message that waits; return its recall handle."""
    ext = send_fields(TOPIC, 0)
    ext["i"] = properties.pack({"UNIQ_KEY": body.decode(), "TIMER_DELAY_MS": str(delay_s * 1000)}).decode()
    reply = folder.client.ask(SEND, ext, body)
    assert reply.code == 0, (reply.code, reply.remark)
    return reply.ext["recallHandle"]


def retimed(folder: Folder, handle: str, delay_s: int) -> None:
    ext = {"topic": TOPIC, "recallHandle": handle, "delayMs": str(delay_s * 1000)}
    reply = folder.client.ask(RequestCode.RETIME_DELAYED, ext)
    assert reply.code == 0, (reply.code, reply.remark)


def taken(folder: Folder, wanted: set[bytes]) -> list[bytes]:
    """Pop and acknowledge until all wanted bodies came."""
    found: list[bytes] = []
    until = time.monotonic() + HANG_S
    while not wanted <= set(found):
        assert time.monotonic() < until, f"{sorted(wanted - set(found))} did not come"
        for message in folder.pop(32, 60_000):
            found.append(message.body)
            folder.ack(message)
        threading.Event().wait(0.2)
    return found


@pytest.mark.slow
@pytest.mark.only_on_gantry
@pytest.mark.timeout(900)
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_message_that_got_another_time_is_not_lost_in_a_folder_that_goes_there_and_back(
    folder: Folder, how: str
) -> None:
    folder.open("gantry")
    retimed(folder, sent(folder, b"earlier", FAR_S), SOON_S)
    retimed(folder, sent(folder, b"later", SOON_S), LATER_S)
    far = sent(folder, b"back", FAR_S)
    retimed(folder, far, FAR_S + 10)
    folder.close(how)
    folder.open("apache-5.x")
    found = taken(folder, {b"earlier", b"later"})
    assert b"back" not in found
    folder.close("stop")
    folder.open("gantry")
    listed = folder.client.ask(RequestCode.LIST_DELAYED, {"topic": TOPIC})
    assert listed.code == 0 and b'"back"' in listed.body
    assert {message.body for message in folder.pop(32, 60_000)} <= {b"earlier", b"later"}, "at most repeated"
