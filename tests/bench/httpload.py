"""Load on a server of HTTP queues: connections that make one call after the other; prints a row of JSON.

    python tests/bench/httpload.py PORT PID QUEUE MODE CONNECTIONS SECONDS

Modes: `send`, `send16`, `take` (receive and delete), `take16`, `poll` (only long polls).  A rate counts messages; CPU
is that of the server's process, all of its threads.  Latencies are of the first call of each round.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from pathlib import Path

_HEAD = "Host: bench\r\nx-mns-version: 2015-06-06\r\nContent-Type: text/xml;charset=utf-8\r\n"
_MESSAGE = f"<Message><MessageBody>{'x' * 100}</MessageBody></Message>"
_MANY = f"<Messages>{_MESSAGE * 16}</Messages>"
_TICKS = 100
_HANDLE = re.compile(rb"<ReceiptHandle>.*?</ReceiptHandle>")
_WARM_S = 1.0


class Load:
    """What all connections count."""

    def __init__(self, queue: str, mode: str) -> None:
        self.messages = 0
        self.errors = 0
        self.took: list[float] = []
        self.mode = mode
        at = f"/queues/{queue}/messages"
        self.target = at
        self.first = {
            "send": _call("POST", at, _MESSAGE),
            "send16": _call("POST", at, _MANY),
            "take": _call("GET", f"{at}?waitseconds=5"),
            "take16": _call("GET", f"{at}?numOfMessages=16&waitseconds=5"),
            "poll": _call("GET", f"{at}?waitseconds=30"),
        }[mode]


class Caller(asyncio.Protocol):
    """One connection."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._received = b""
        self._leased = 0  # messages of the delete that is under way; 0: the first call of a round is

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport) or hasattr(transport, "write")
        self._transport = transport
        self._begin()

    def _begin(self) -> None:
        self._begun = time.perf_counter()
        self._transport.write(self._load.first)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self._received += data
        while True:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                return
            length = re.search(rb"Content-Length: (\d+)", self._received[:end])
            whole = end + 4 + (int(length[1]) if length else 0)
            if len(self._received) < whole:
                return
            answer, self._received = self._received[:whole], self._received[whole:]
            self._answered(answer)

    def _answered(self, answer: bytes) -> None:
        load, status = self._load, answer[9:12]
        if self._leased:
            load.messages += self._leased if status == b"204" else 0
            load.errors += status != b"204"
            self._leased = 0
            self._begin()
            return
        load.took.append(time.perf_counter() - self._begun)
        handles = _HANDLE.findall(answer) if load.mode.startswith("take") else []
        if status == b"201":
            load.messages += 16 if load.mode == "send16" else 1
        elif status not in (b"200", b"404"):
            load.errors += 1
        if not handles:
            self._begin()
            return
        self._leased = len(handles)
        body = b"".join(handles).decode()
        if load.mode == "take":
            only = body.removeprefix("<ReceiptHandle>").removesuffix("</ReceiptHandle>")
            call = _call("DELETE", f"{load.target}?ReceiptHandle={only}")
        else:
            call = _call("DELETE", load.target, f"<ReceiptHandles>{body}</ReceiptHandles>")
        self._transport.write(call)  # type: ignore[attr-defined]


async def measure(port: int, pid: int, load: Load, connections: int, seconds: float) -> dict[str, float]:
    """Run the load; the figures of the time after a warm-up."""
    loop = asyncio.get_running_loop()
    for _ in range(connections):
        await loop.create_connection(lambda: Caller(load), "127.0.0.1", port)
    await asyncio.sleep(_WARM_S)
    load.messages, load.took = 0, []
    begun, cpu = time.perf_counter(), _cpu_s(pid)
    await asyncio.sleep(seconds)
    lasted, used, took = time.perf_counter() - begun, _cpu_s(pid) - cpu, sorted(load.took) or [0.0]
    return {
        "rate": round(load.messages / lasted),
        "rate_per_core": round(load.messages / used) if used else 0,
        "cpu_percent": round(100 * used / lasted, 1),
        "p50_us": round(took[len(took) // 2] * 1e6),
        "p99_us": round(took[len(took) * 99 // 100] * 1e6),
        "resident_mb": _resident_mb(pid),
        "errors": load.errors,
    }


def _call(method: str, target: str, body: str = "") -> bytes:
    return f"{method} {target} HTTP/1.1\r\n{_HEAD}Content-Length: {len(body)}\r\n\r\n{body}".encode()


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _resident_mb(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) // 1024 if found else 0


def main() -> None:
    """Run it and print the row."""
    port, pid, queue, mode, connections, seconds = sys.argv[1:]
    found = measure(int(port), int(pid), Load(queue, mode), int(connections), float(seconds))
    try:
        import uvloop
    except ImportError:
        print(json.dumps(asyncio.run(found)))
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(json.dumps(runner.run(found)))


if __name__ == "__main__":
    main()
