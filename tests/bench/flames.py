"""`make profile`: flame graphs of a broker under load and of the client, as SVG files in build/profile.

    python tests/bench/flames.py [--seconds S] [--way NAME] [--out DIR]

    broker-send.svg       plain sends of the load generator, 64 connections with 8 under way each
    broker-pull.svg       pulls of 32 messages
    broker-transact.svg   half and commit, 64 transactional producers
    client.svg            a producer with 64 sends under way, and a consumer with a listener
    way-NAME.svg          with --way, and nothing else: the replay of one hot way (tests/testkit/hotways.py)

Stacks hold Python functions, compiled leaves and the interpreter, sampled by py-spy.  A width is a share of samples: in
graphs of the broker of those in which a thread held the interpreter (its other threads wait most of the time), in the
others of those in which the process was not idle.  At most RATE requests a second are begun, every load ends by itself,
and all of it stays on 127.0.0.1.  On a busy machine compare shares within one graph, and costs by `make gate`.

Attaching to the broker wants root or ptrace's permission; py-spy says so when it is missing.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from servers import Server, gantry

_HERE = Path(__file__).parent
_TESTS = _HERE.parent
RATE = 20_000
_SAMPLES_PER_S = 200
_TOPIC = "Profiled"
_LOADS = {
    "send": ["--mode", "send", "--connections", "64", "--window", "8"],
    "pull": ["--mode", "pull", "--connections", "8", "--window", "4", "--batch", "32"],
    "transact": ["--mode", "transact", "--connections", "64", "--window", "1"],
}
_UNDER_WAY = 64
_BODY = b"x" * 1024


def spied(output: Path, seconds: float, target: list[str]) -> None:
    """Sample a process for so long, or a command until it ends; the flame graph goes to `output`."""
    spy = [str(Path(sys.executable).with_name("py-spy")), "record", "--native", "--function"]
    spy += ["--rate", str(_SAMPLES_PER_S), "--duration", str(int(seconds)), "--output", str(output)]
    done = subprocess.run([*spy, *target], capture_output=True, text=True, timeout=seconds + 120, check=False)
    if done.returncode or not output.exists():
        raise SystemExit(f"py-spy record of {output.name} failed:\n{done.stdout}{done.stderr}")
    print(output)


def broker(out: Path, tools: Path, server: Server, load: str, seconds: float) -> None:
    """Sample a broker while the load generator asks it."""
    command = [str(tools / "loadgen"), "--port", str(server.port), *_LOADS[load], "--rate", str(RATE)]
    command += ["--seconds", str(seconds + 2), "--warmup", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as asking:
        spied(out / f"broker-{load}.svg", seconds, ["--gil", "--pid", str(server.pid)])
        told, _ = asking.communicate()
    if asking.returncode:
        raise SystemExit(f"loadgen failed: {told}")


async def clients(nameserver: str, seconds: float) -> None:
    """Send and consume with the client of this project."""
    from gantry.client import Consumer, Message, Producer
    from gantry.client.received import ReceivedMessage

    end = time.monotonic() + seconds

    async def listen(message: ReceivedMessage) -> None:
        """Return at once: what is looked at is the client."""

    async def send(producer: Producer) -> None:
        while time.monotonic() < end:
            await producer.send(Message(_TOPIC, _BODY, tags="paid", keys=("order-1",)))

    async with Producer("profile", nameserver=nameserver) as producer:
        await producer.send(Message(_TOPIC, _BODY))
        async with Consumer("profile-c", nameserver=nameserver, subscription={_TOPIC: "*"}, listener=listen):
            await asyncio.gather(*(send(producer) for _ in range(_UNDER_WAY)))


def replay(name: str, seconds: float) -> None:
    """Replay one hot way again and again."""
    from testkit.hotways import WAYS, Ground
    from testkit.stillworld import still_broker

    (way,) = [way for way in WAYS if way.name == name]
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder, still_broker(Path(folder)) as still:
        ground = Ground(still)
        while time.monotonic() < end:
            for piece in way.replay(ground):
                piece.run()
            ground.rest()
        ground.stop()


def main() -> None:
    """Make the graphs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each graph")
    parser.add_argument("--way", help="the replay of this hot way, in the place of all others")
    parser.add_argument("--out", type=Path, default=Path("build/profile"))
    parser.add_argument("--clients", help=argparse.SUPPRESS)
    parser.add_argument("--replay", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.path.insert(0, str(_TESTS))
    if options.clients:
        asyncio.run(clients(options.clients, options.seconds))
        return
    if options.replay:
        replay(options.replay, options.seconds)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    again = [sys.executable, __file__, "--seconds", str(options.seconds)]
    if options.way:
        spied(options.out / f"way-{options.way}.svg", options.seconds + 30, ["--", *again, "--replay", options.way])
        return
    with tempfile.TemporaryDirectory() as folder:
        tools = Path(folder)
        subprocess.run(["gcc", "-O2", "-Wall", "-o", str(tools / "loadgen"), "loadgen.c"], cwd=_HERE, check=True)
        with gantry(tools / "broker") as server:
            for load in _LOADS:
                broker(options.out, tools, server, load, options.seconds)
        with gantry(tools / "served") as server:
            command = ["--", *again, "--clients", f"127.0.0.1:{server.nameserver_port}"]
            spied(options.out / "client.svg", options.seconds + 30, command)


if __name__ == "__main__":
    main()
