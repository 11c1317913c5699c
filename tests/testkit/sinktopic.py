"""What a sink has left in a cluster: the bodies that consumers of its topic get, and what is open."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

from gantry.client.blocking import BlockingPuller
from gantry.client.blockingsinks import BlockingSinks
from gantry.client.requests.sink_requests import OpenPartInfo
from gantry.model.message import StoredMessage

PATIENCE_S = 240.0


def bodies(nameserver: str, topic: str) -> list[str]:
    """All of them, sorted."""
    return sorted(message.body.decode() for message in messages(nameserver, topic))


def messages(nameserver: str, topic: str) -> list[StoredMessage]:
    """All messages of a topic, queue by queue."""
    found: list[StoredMessage] = []
    with BlockingPuller("look", nameserver=nameserver) as puller:
        for queue in puller.queues(topic):
            at, end = 0, puller.max_offset(queue)
            while at < end:
                pulled = puller.pull(queue, at, count_max=1000)
                found += pulled.messages
                at = pulled.next_offset
    return found


def left_open(nameserver: str, sink: str = "") -> list[OpenPartInfo]:
    """Parts with open halves, of a sink or of all."""
    with BlockingSinks(nameserver) as sinks:
        return sinks.look(sink)[1]


def until(holds: Callable[[], bool], what: str) -> None:
    """Until it is so; AssertionError when it never is."""
    deadline, pause = time.monotonic() + PATIENCE_S, threading.Event()
    while not holds():
        assert time.monotonic() < deadline, f"never happened: {what}"
        pause.wait(0.2)


def sink_in(checkpoint: Path) -> str:
    """The sink that a checkpoint belongs to."""
    found = json.loads((checkpoint / "gantrymq-sink.json").read_text())
    return str(found["sinkId"])


def once(nameserver: str, topic: str, expected: list[str], checkpoint: Path) -> None:
    """Every line is there once, and nothing of the checkpoint's sink stays open when the checks have looked."""
    found, sink = bodies(nameserver, topic), sink_in(checkpoint)
    assert len(found) == len(set(found)), "something is there twice"
    assert found == sorted(expected), f"{len(found)} of {len(expected)}"
    until(lambda: left_open(nameserver, sink) == [], "nothing of the sink is open")
