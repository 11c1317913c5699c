"""Kafka 4 as one process that is broker and controller (KRaft), from Maven Central, for figures beside ours.

The settings are Kafka's own, but for copies: there is one broker.  `flush_every` is how many messages may be written
before a sync; None is Kafka's default, which leaves it to the kernel.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servers import Server, free_port, running, wait_for_port

_HERE = Path(__file__).resolve().parent
_CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"
HEAP = "1g"  # Kafka's own start script has it


def jars(name: str) -> str:
    """The class path of a pom under `kafka/`: `broker` or `spark`."""
    if str(_HERE.parent) not in sys.path:
        sys.path.insert(0, str(_HERE.parent))
    from interop import prepare

    prepare.require("java")
    return prepare.jars(f"kafka-{name}", _HERE / "kafka" / name / "pom.xml")


@contextmanager
def kafka(folder: Path, *, partitions: int = 1, flush_every: int | None = None) -> Iterator[Server]:
    """A broker that serves; topics are made by their first use, with this many partitions."""
    path, port, controller = jars("broker"), free_port(), free_port()
    settings: dict[str, str | int] = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "log.dirs": str(folder / "data"),
        "num.partitions": partitions,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
    }
    if flush_every is not None:
        settings["log.flush.interval.messages"] = flush_every
    folder.mkdir(parents=True, exist_ok=True)
    conf = folder / "server.properties"
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    format_it = ["java", "-cp", path, "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(conf)]
    subprocess.run(format_it, check=True, capture_output=True, timeout=120)
    begin = time.monotonic()
    command = ["java", f"-Xmx{HEAP}", f"-Xms{HEAP}", "-XX:+UseG1GC", "-cp", path, "kafka.Kafka", str(conf)]
    with running(command) as process:
        wait_for_port(port)
        yield Server(process.pid, port, time.monotonic() - begin)
