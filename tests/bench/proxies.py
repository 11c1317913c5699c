"""What the gRPC proxy costs: CPU of its processes for each call, beside a bare server of grpc.aio.

Clients behave as RocketMQ's SDKs do (`grpcload.py`): one message a call.  The broker, the proxy, the echo and the
clients are processes of their own; loads go to echo and proxy in turn, and a ratio is one of neighbours in time.

    calls     send, and receive + acknowledge, 64 under way on 8 connections; one worker and two
    latency   the median of a send at RATE calls a second, by gRPC and by our client over remoting
    memory    anonymous memory with 10 000 idle telemetry streams, on 100 connections and on 10 000

Two workers on two cores that also run the clients and the broker cannot show twice the rate.  What is reported is the
CPU for each call, which bounds what N cores can do.
"""

from __future__ import annotations

import asyncio
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from apache import FLAGS, HEAP, is_here, port_of, prepared
from contests import make_topic
from pops import cpu_s
from servers import Server, free_port, gantry, running

if TYPE_CHECKING:
    from scenarios import Bench, Row

_HERE = Path(__file__).parent
_TOPIC, _GROUP = "Calls", "callers"
_LOADER = [sys.executable, str(_HERE / "grpcload.py")]
_STREAMS = 10_000
_FDS = 3  # of the proxy for each connection: the client's, and both ends of the splice
_WARMUP_JAVA_S = 10.0  # of sends, and as long of receives
RATE = 50.0
Cpu = Callable[[], float]


@contextmanager
def proxy(nameserver_port: int, *, workers: int = 1) -> Iterator[tuple[Server, list[int]]]:
    """`gantry proxy`; and the pids of all of its processes."""
    command = [str(Path(sys.executable).with_name("gantry")), "proxy", "--namesrv", f"127.0.0.1:{nameserver_port}"]
    command += ["--bind", "127.0.0.1", "--grpc-port", "0", "--http-port", "-1", "--workers", str(workers)]
    begin = time.monotonic()
    with running([*command, "--log-level", "warning"]) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("ready "):
            raise SystemExit(f"gantry proxy did not start: {line!r}")
        port = int(dict(part.split("=", 1) for part in line.split()[1:])["grpc"].rpartition(":")[2])
        yield Server(process.pid, port, time.monotonic() - begin), [process.pid, *_children(process.pid)]


@contextmanager
def apaches(folder: Path) -> Iterator[tuple[Server, list[int]]]:
    """Apache's proxy 5.x in cluster mode with a heap of 2 GiB, in front of Apache's broker, which has the topic."""
    broker = prepared(folder / "broker")
    from interop.prepare import apache_proxy  # `prepared` has made it importable

    try:
        broker.start()
        make_topic(port_of(broker), _TOPIC)
        home, port, begin = folder / "proxy", free_port(), time.monotonic()
        (home / "conf").mkdir(parents=True)
        settings = {"rocketMQClusterName": "DefaultCluster", "proxyMode": "CLUSTER", "namesrvAddr": broker.name_server}
        settings |= {"grpcServerPort": port, "remotingListenPort": free_port(), "proxyName": "bench"}
        (home / "proxy.json").write_text(json.dumps(settings))
        command = ["java", *FLAGS, f"-Xmx{HEAP}", f"-Duser.home={home}", "-cp", apache_proxy()]
        command += ["org.apache.rocketmq.proxy.ProxyStartup", "-pc", str(home / "proxy.json"), "-n", broker.name_server]
        with running(command, {"RMQ_PROXY_HOME": str(home)}) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if "startup successfully" in line:
                    break
            yield Server(process.pid, port, time.monotonic() - begin), [process.pid]
    finally:
        broker.close()


@contextmanager
def echo() -> Iterator[Server]:
    """The bare server."""
    begin = time.monotonic()
    with running([sys.executable, str(_HERE / "grpcecho.py")]) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().split()[1])
        yield Server(process.pid, port, time.monotonic() - begin)


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def called(port: int, mode: str, pids: list[int], seconds: float, **more: object) -> dict[str, float]:
    """One run of the clients: calls, quantiles, and CPU of these processes in us for each call."""
    command = [*_LOADER, "--port", str(port), "--mode", mode, "--seconds", str(seconds), "--topic", _TOPIC]
    for name, value in {"run": time.monotonic_ns() & 0xFFFFFFF, **more}.items():
        command += [f"--{name}", str(value)]
    with running(command) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "begin\n":
            raise SystemExit(f"the clients ({mode}) did not begin")
        before = sum(map(cpu_s, pids))
        line = process.stdout.readline()
        spent_s = sum(map(cpu_s, pids)) - before
        if process.wait(60) or not line:
            raise SystemExit(f"the clients ({mode}) ended with {process.returncode}")
    found: dict[str, float] = json.loads(line)
    return {**found, "rate": found["calls"] / found["seconds"], "cpu_us": 1e6 * spent_s / max(1, found["calls"])}


def _calls(
    bench: Bench, name: str, target: str, made: AbstractContextManager[tuple[Server, list[int]]], warmup_s: float = 0.0
) -> list[Row]:
    """Sends, and receives with acknowledgements, each beside the echo; the rows are the median rounds by the ratio."""
    found: dict[str, list[tuple[dict[str, float], float]]] = {"send": [], "consume": []}
    with echo() as bare, made as (server, pids):
        for mode in found if warmup_s else ():
            called(server.port, mode, pids, warmup_s, group="warm")
        for number in range(bench.rounds):
            for mode, runs in found.items():
                beside = called(bare.port, "echo", [bare.pid], bench.seconds)
                # Fewer are consumed in as long as there were sent: a receive finds its message at once.
                more = {"group": f"{_GROUP}-{name.replace(' ', '-')}-{number}"} if mode == "consume" else {}
                run = called(server.port, mode, pids, bench.seconds, **more)
                runs.append((run, beside["cpu_us"]))
    rows: list[Row] = []
    for mode, runs in found.items():
        factors = sorted(run["cpu_us"] / bare_us for run, bare_us in runs)
        run, bare_us = sorted(runs, key=lambda one: one[0]["cpu_us"] / one[1])[len(runs) // 2]
        what = "send" if mode == "send" else "receive or acknowledge"
        rows.append(
            {
                "figure": f"{name}: {what}, one message a call",
                **{key: round(run[key], 1) for key in ("rate", "p50_us", "p99_us")},
                "cpu_us_per_message": round(run["cpu_us"], 1),
                "target": target,
                "note": f"{statistics.median(factors):.2f} ({factors[0]:.2f} to {factors[-1]:.2f}) x a bare echo "
                f"({bare_us:.0f} us)",
            }
        )
    return rows


async def _remoting_us(nameserver_port: int, seconds: float) -> float:
    from gantry.client import Message, Producer

    took = []
    async with Producer("bench", nameserver=f"127.0.0.1:{nameserver_port}") as producer:
        until = time.monotonic() + 1 + seconds
        while (begun := time.monotonic()) < until:
            await producer.send(Message(_TOPIC, bytes(1024)))
            took.append((time.monotonic() - begun) * 1e6)
            await asyncio.sleep(max(0.0, begun + 1 / RATE - time.monotonic()))
    return statistics.median(took[int(RATE) :])


def _latency(bench: Bench, nameserver_port: int) -> list[Row]:
    rounds = []
    with echo() as bare, proxy(nameserver_port) as (server, pids):
        few = {"channels": 1, "window": 1, "rate": RATE}
        for _ in range(bench.rounds):
            remoting_us = asyncio.run(_remoting_us(nameserver_port, bench.seconds))
            by_proxy = called(server.port, "send", pids, bench.seconds, **few)["p50_us"]
            alone = called(bare.port, "echo", [bare.pid], bench.seconds, **few)["p50_us"]
            rounds.append((by_proxy - remoting_us, by_proxy, remoting_us, alone))
    added = sorted(one[0] for one in rounds)
    _, by_proxy, remoting_us, alone = sorted(rounds)[len(rounds) // 2]
    note = f"{by_proxy:.0f} us, remoting {remoting_us:.0f} us; a bare echo takes {alone:.0f} us"
    spread = f"({added[0] / 1000:.2f} to {added[-1] / 1000:.2f})"
    return [
        {
            "figure": f"proxy: added to the p50 of a send, {RATE:.0f} a second",
            "ms": round(statistics.median(added) / 1000, 2),
            "target": "<= 1 ms",
            "note": f"{spread} {note}",
        }
    ]


def anonymous_mib(pid: int) -> float:
    """Anonymous memory of a process."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("smaps_rollup without Anonymous")


def _memory(nameserver_port: int) -> list[Row]:
    rows: list[Row] = []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        for connections, target in ((100, "<= 350 MiB"), (_STREAMS, "<= 550 MiB")):
            kept = min(connections, (hard - 2_000) // _FDS)
            count = _STREAMS // connections * kept
            with proxy(nameserver_port) as (server, _):
                idle = anonymous_mib(server.pid)
                mib = _with_streams(server, count, kept)
                each = (mib - idle) / count
            figure = f"proxy: {_STREAMS} idle telemetry streams on {connections} connections"
            note = f"{idle:.0f} MiB without them; {each * 1024:.1f} KiB a stream"
            if kept < connections:
                note += f"; measured with {count}, as many as {hard} open files allow, and counted up"
                mib = idle + each * _STREAMS
            rows.append({"figure": figure, "mib": round(mib, 1), "target": target, "note": note})
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return rows


def _with_streams(server: Server, count: int, connections: int) -> float:
    command = [*_LOADER, "--port", str(server.port), "--mode", "streams", "--count", str(count)]
    command += ["--channels", str(connections)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        line = process.stdout.readline()
        if not line or json.loads(line)["streams"] != count:
            process.kill()
            raise SystemExit(f"{count} idle streams could not be opened: {line!r}")
        mib = anonymous_mib(server.pid)
        process.stdin.close()
        if process.wait(60):
            raise SystemExit("idle streams did not stay open")
    return mib


def proxies(bench: Bench) -> list[Row]:
    """All of it, over one broker."""
    with gantry(bench.folder / "proxies") as server:
        make_topic(server.port, _TOPIC)
        names = server.nameserver_port
        rows = _calls(bench, "proxy with 1 worker", "<= 2 x the echo", proxy(names))
        rows += _calls(bench, "proxy with 2 workers", "as one worker, / 0.8 at most", proxy(names, workers=2))
        rows += _latency(bench, names) + _memory(names)
    if is_here():
        rows += _calls(bench, "Apache proxy", "yardstick", apaches(bench.folder / "apache"), _WARMUP_JAVA_S)
    return rows
