"""Other brokers, for orientation: Kafka 4 (KRaft), NATS JetStream and Redis Streams, beside ours and Apache's.

Each server is alone with its client on a fresh folder and stores messages of 1 KiB durably in its own usual sense, then
gives them out again:

    ours, Apache's   ASYNC_FLUSH; the C load generator, one connection with 256 sends under way; pulls of 32, 8 at once
    Kafka            acks=all, one replica, no flush for each message; its own ProducerPerformance and
                     ConsumerPerformance
    NATS             a stream of file storage, synced every two minutes; `nats bench js` with 256 publishes under way
    Redis            appendfsync everysec; the C load generator, and XREADGROUP NOACK COUNT 32 by redis-benchmark

These are not contests: "durable" is another promise each time, and so are a batch and an acknowledgement.  The figure
to look at is CPU of the server for each message.  Counts are compared: what was acknowledged has to be there.

Kafka's jars come from Maven Central and NATS from the Go module proxy, into .cache/bench, in the versions below; Redis
is Debian's package.  A server that cannot be had is left out, and the report says so.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from apache import apache
from comparereport import OTHERS, Round
from contests import OURS, QUEUES, TOPIC, make_topic, stored
from pops import cpu_s
from quiet import Watch
from servers import Server, free_port, gantry, redis, running, wait_for_port

if TYPE_CHECKING:
    from scenarios import Bench

_CACHE = Path(__file__).resolve().parent.parent.parent / ".cache" / "bench"
_KAFKA = "4.1.0"
_NATS = ("github.com/nats-io/nats-server/v2@v2.15.2", "github.com/nats-io/natscli/nats@v0.5.1")
_WARM, _COUNT = 100_000, 400_000
_SIZE, _BATCH = 1024, 32
_RATE = re.compile(r"([\d,]+) msgs/sec")
_SECONDS_MAX = 300.0
Measured = dict[str, float]
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>bench</groupId><artifactId>kafka</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{0}</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{0}</version></dependency>
</dependencies></project>
"""
_PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/logs
num.partitions=8
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""


def prepare() -> None:
    """Fetch and build what is missing; what cannot be had is named on stderr."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    if shutil.which("mvn") and not _jars().exists():
        folder = _jars().parent
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pom.xml").write_text(_POM.format(_KAFKA))
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}/coming", "-DincludeScope=runtime"]
        if _ran(["mvn", "-q", "-B", "-f", str(folder / "pom.xml"), *goal], {}):
            (folder / "coming").rename(_jars())
    for module in _NATS:
        if shutil.which("go") and not _binary(module).exists():
            _ran(["go", "install", module], {"GOBIN": str(_CACHE / "bin")})


def _ran(command: list[str], env: dict[str, str]) -> bool:
    with running(command, env) as process:
        try:
            is_done = process.wait(540) == 0
        except subprocess.TimeoutExpired:
            is_done = False
    if not is_done:
        print(f"not to be had: {' '.join(command)}", file=sys.stderr)
    return is_done


def _jars() -> Path:
    return _CACHE / f"kafka-{_KAFKA}" / "lib"


def _binary(module: str) -> Path:
    name = module.partition("@")[0].removesuffix("/v2").rpartition("/")[2]
    return _CACHE / "bin" / name


def _java(*arguments: str, heap: str = "1g") -> list[str]:
    return ["java", f"-Xms{heap}", f"-Xmx{heap}", "-XX:+UseG1GC", "-cp", f"{_jars()}/*", *arguments]


def _output(command: list[str]) -> str:
    """What a client printed; it has to end well."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS_MAX, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)[:200]} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def _spent(server: Server, count: int, client: Callable[[], float]) -> Measured:
    """Rate (messages a second, as the client says) and CPU of the server for each message."""
    before = cpu_s(server.pid)
    rate = client()
    return {"rate": rate, "cpu_us_per_message": 1e6 * (cpu_s(server.pid) - before) / count}


@contextmanager
def kafka(folder: Path) -> Iterator[Server]:
    """A broker and its controller in one process."""
    folder.mkdir(parents=True)
    port, properties = free_port(), folder / "server.properties"
    properties.write_text(_PROPERTIES.format(folder=folder, port=port, controller=free_port()))
    cluster = _output(_java("kafka.tools.StorageTool", "random-uuid", heap="128m")).split()[-1]
    _output(_java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties), heap="128m"))
    begin = time.monotonic()
    with running(_java("kafka.Kafka", str(properties)), {"LOG_DIR": str(folder)}) as process:
        wait_for_port(port)
        yield Server(process.pid, port, time.monotonic() - begin)


def _kafka(bench: Bench, folder: Path) -> dict[str, Measured]:
    with kafka(folder) as server:
        address = f"127.0.0.1:{server.port}"

        def produce(count: int) -> float:
            command = ["org.apache.kafka.tools.ProducerPerformance", "--topic", TOPIC, "--num-records", str(count)]
            command += ["--record-size", str(_SIZE), "--throughput", "-1", "--producer-props"]
            said = _output(_java(*command, f"bootstrap.servers={address}", "acks=all"))
            found = re.findall(r"^(\d+) records sent, ([\d.]+) records/sec", said, re.MULTILINE)
            if not found or int(found[-1][0]) != count:
                raise SystemExit(f"Kafka: {count} records were to be sent: {said[-300:]}")
            return float(found[-1][1])

        def consume() -> float:
            command = ["org.apache.kafka.tools.ConsumerPerformance", "--topic", TOPIC, "--bootstrap-server", address]
            said = _output(_java(*command, "--messages", str(_COUNT), "--hide-header", "--timeout", "60000"))
            words = [word.strip() for word in said.strip().splitlines()[-1].split(",")]
            if int(words[4]) < _COUNT:
                raise SystemExit(f"Kafka: {words[4]} of {_COUNT} messages came: {said[-300:]}")
            return 1000 * int(words[4]) / max(1, int(words[7]))  # without the time until the group has its partitions

        topic = ["--create", "--topic", TOPIC, "--partitions", str(QUEUES), "--replication-factor", "1"]
        _output(_java("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", address, *topic, heap="128m"))
        produce(_WARM)
        return {
            "produce": _spent(server, _COUNT, lambda: produce(_COUNT)),
            "consume": _spent(server, _COUNT, consume),
        }


@contextmanager
def nats(folder: Path) -> Iterator[Server]:
    """A server with JetStream."""
    port, begin = free_port(), time.monotonic()
    command = [str(_binary(_NATS[0])), "-js", "-sd", str(folder), "-a", "127.0.0.1", "-p", str(port)]
    with running([*command, "-l", str(folder.with_suffix(".log"))]) as process:
        wait_for_port(port)
        yield Server(process.pid, port, time.monotonic() - begin)


def _nats(bench: Bench, folder: Path) -> dict[str, Measured]:
    folder.mkdir(parents=True)
    with nats(folder) as server:
        base = [str(_binary(_NATS[1])), "--server", f"nats://127.0.0.1:{server.port}", "bench", "js"]

        def ran(*arguments: str) -> float:
            said = _output([*base, *arguments, "--no-progress"])
            rates = [int(one.replace(",", "")) for one in _RATE.findall(said)]
            if not rates:
                raise SystemExit(f"nats bench said no rate: {said[-500:]}")
            return float(rates[0])

        def publish(count: int, *more: str) -> float:
            sizes = ["--msgs", str(count), "--size", f"{_SIZE}B", "--batch", "256", "--storage", "file"]
            return ran("pub", "async", TOPIC, *sizes, "--stream", TOPIC, *more)

        publish(_WARM, "--create", "--maxbytes", "4GB")
        return {
            "produce": _spent(server, _COUNT, lambda: publish(_COUNT, "--purge")),
            "consume": _spent(server, _COUNT, lambda: ran("ordered", "--stream", TOPIC, "--msgs", str(_COUNT))),
        }


def _redis(bench: Bench, folder: Path) -> dict[str, Measured]:
    folder.mkdir(parents=True)
    with redis(folder, fsync="everysec") as server:
        assert server is not None
        cli = ["redis-cli", "-p", str(server.port)]

        def produce(count: int) -> float:
            load = {"mode": "redis", "connections": 1, "window": 256, "count": count, "warmup": 0, "seconds": 60}
            return bench.load(server, **load)["rate"]

        def consume() -> float:
            command = ["redis-benchmark", "-p", str(server.port), "-c", str(QUEUES), "--csv"]
            command += ["-n", str(_COUNT // _BATCH), "XREADGROUP", "GROUP", "readers", "one", "NOACK"]
            said = _output([*command, "COUNT", str(_BATCH), "STREAMS", TOPIC, ">"])
            return float(said.strip().splitlines()[-1].split(",")[1].strip('"')) * _BATCH

        produce(_WARM)
        _output([*cli, "DEL", TOPIC])
        produced = _spent(server, _COUNT, lambda: produce(_COUNT))
        if (there := int(_output([*cli, "XLEN", TOPIC]))) < _COUNT:
            raise SystemExit(f"Redis: {there} of {_COUNT} messages are there")
        _output([*cli, "XGROUP", "CREATE", TOPIC, "readers", "0"])
        return {"produce": produced, "consume": _spent(server, _COUNT // _BATCH * _BATCH, consume)}


def _rocketmq(bench: Bench, server: Server) -> dict[str, Measured]:
    make_topic(server.port, TOPIC)
    send = {"mode": "send", "connections": 1, "window": 256, "warmup": 0, "seconds": 60}
    bench.load(server, count=_WARM, **send)
    before = stored(server.port, TOPIC)
    produced = _spent(server, _COUNT, lambda: bench.load(server, count=_COUNT, **send)["rate"])
    if stored(server.port, TOPIC) - before < _COUNT:
        raise SystemExit("messages that were acknowledged are not there")
    pull = {"mode": "pull", "connections": QUEUES, "window": 1, "batch": _BATCH, "warmup": 0}
    result = bench.load(server, count=_COUNT, seconds=60, **pull)
    return {"produce": produced, "consume": {key: result[key] for key in ("rate", "cpu_us_per_message")}}


def _ours(bench: Bench, folder: Path) -> dict[str, Measured]:
    with gantry(folder, env=OURS) as server:
        return _rocketmq(bench, server)


def _apaches(bench: Bench, folder: Path) -> dict[str, Measured]:
    with apache(folder) as server:
        return _rocketmq(bench, server)


def _present() -> dict[str, Callable[[Bench, Path], dict[str, Measured]]]:
    found = {"ours": _ours, "apache": _apaches}
    if _jars().exists():
        found["kafka"] = _kafka
    if all(_binary(module).exists() for module in _NATS):
        found["nats"] = _nats
    if shutil.which("redis-server"):
        found["redis"] = _redis
    assert set(found) <= set(OTHERS)
    return found


def orientation(bench: Bench, rounds: int) -> list[Round]:
    """Produce and consume, every server in turn."""
    prepare()
    found = []
    for number in range(rounds):
        for side, measure in _present().items():
            folder, watch = bench.folder / f"others-{number}-{side}", Watch(())
            measured, noise = measure(bench, folder), watch.noise()
            found += [Round("others", f"{what} 1 KiB", side, number, one, noise) for what, one in measured.items()]
            shutil.rmtree(folder, ignore_errors=True)
    return found
