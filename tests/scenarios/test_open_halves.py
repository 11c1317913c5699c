"""100 000 open halves in a real broker: asking about them leaves the loop to others, memory bounded, the log alone.

Times on a shared machine say little, so the bounds here are those between asking in slices (a millisecond each) and
asking in one go (seconds).  How long anyone who comes waits is a figure: tests/bench/openhalves.py.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gantry.leaves import frames
from testkit.patience import HANG_S
from testkit.process import GantryProcess
from testkit.rawclient import SEND, RawClient, send_fields

_COUNT = 100_000
_AHEAD = 200
_GROUP = "payers"
_TOPIC = "orders"
_RULES = {
    "transactions.check_interval_s": "0.5",
    "transactions.immunity_s": "0",
    "transactions.checks_max": "0",
}
_WITHIN_S = 300.0
_HEARTBEAT_S = 20.0  # who is silent for two minutes is let go
_ONE_GO_S = 1.5  # 100 000 questions take twice as long and more
_ASKED = 'gantry_transaction_checks_total{result="asked"}'
_PASSES = 'gantry_job_runs_total{job="check back"}'


class _Looked:
    """What /metrics said."""

    def __init__(self, process: GantryProcess) -> None:
        host, port = process.addresses["http"]
        with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=HANG_S) as page:
            text = page.read().decode()
        self._values = dict(re.findall(r"^(gantry_\S+(?:\{.*\})?) (\S+)$", text, re.MULTILINE))

    def __getitem__(self, series: str) -> float:
        return float(self._values.get(series, 0.0))


def _open(process: GantryProcess, count: int) -> None:
    """So many halves, pipelined; each is acknowledged."""
    with RawClient(process.broker) as client:
        asked = answered = 0
        while answered < count:
            while asked < count and asked - answered < _AHEAD:
                fields = send_fields(_TOPIC, asked % 4)
                fields |= {"a": _GROUP, "f": "4"}
                fields["i"] = f"TRAN_MSG\x01true\x02PGROUP\x01{_GROUP}\x02UNIQ_KEY\x01{asked:032X}\x02"
                client.request(SEND, fields, b"x" * 50)
                asked += 1
            reply = client.reply(60.0)
            assert reply is not None and reply.code == 0, reply
            answered += 1


@contextmanager
def _silent_producer(process: GantryProcess) -> Iterator[None]:
    """A member of the group that takes every question and answers none."""
    beat = {"clientID": "127.0.0.1@1", "producerDataSet": [{"groupName": _GROUP}], "consumerDataSet": []}
    with socket.create_connection(process.broker, 20) as connection:
        heartbeat = frames.encode(frames.Command(34, opaque=1, body=json.dumps(beat).encode()))
        connection.sendall(heartbeat)

        def take() -> None:
            beaten_at = time.monotonic()
            while connection.recv(1 << 20):
                if time.monotonic() - beaten_at > _HEARTBEAT_S:
                    beaten_at = time.monotonic()
                    with suppress(BrokenPipeError):  # the test is over
                        connection.sendall(heartbeat)

        connection.settimeout(None)
        thread = threading.Thread(target=take)
        thread.start()
        try:
            yield
        finally:
            connection.shutdown(socket.SHUT_RDWR)
            thread.join(HANG_S)


def _anonymous_kib(process: GantryProcess) -> int:
    text = Path(f"/proc/{process.popen.pid}/smaps_rollup").read_text()
    found = re.search(r"^Anonymous: +(\d+)", text, re.MULTILINE)
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize("count", [pytest.param(_COUNT, marks=pytest.mark.slow)])
def test_asking_about_open_halves_lets_others_in_and_leaves_the_log_alone(tmp_path: Path, count: int) -> None:
    with GantryProcess(tmp_path / "store", _RULES) as process:
        with RawClient(process.broker) as client:
            client.send(_TOPIC, 0, b"first")  # makes the topic
            assert client.reply(60.0) is not None
        before_kib = _anonymous_kib(process)
        _open(process, count)
        begun = _Looked(process)
        assert begun[f'gantry_transactions_open{{topic="{_TOPIC}"}}'] == count

        with _silent_producer(process), RawClient(process.broker, 60.0) as client:
            until, sent, looked = time.monotonic() + _WITHIN_S, 0, begun
            while looked[_ASKED] < 2 * count:  # at least two passes over all of them
                assert time.monotonic() < until, f"{looked[_ASKED]} questions after {sent} sends"
                for _ in range(50):
                    client.send(_TOPIC, sent % 4, b"plain")
                    reply = client.reply(60.0)
                    assert reply is not None and reply.code == 0
                    sent += 1
                looked = _Looked(process)
            quiet = looked
            while looked[_PASSES] < quiet[_PASSES] + 2:
                assert time.monotonic() < until, "no further pass"
                with suppress(subprocess.TimeoutExpired):
                    process.popen.wait(0.2)  # a pause, and an end if the broker ends
                looked = _Looked(process)

        assert looked['gantry_log_offset{mark="written"}'] == quiet['gantry_log_offset{mark="written"}']
        assert looked['gantry_transactions_moved_total{kind="put_back"}'] == 0
        assert looked['gantry_job_longest_slice_seconds{job="check back"}'] < _ONE_GO_S
        assert (_anonymous_kib(process) - before_kib) / count < 2.0, "KiB per open half, output of questions included"
        assert process.stop() == 0
