"""The servers that other people's clients meet: GantryMQ, or Apache's own to prove that the drivers are right.

All of them look alike from outside: a name server and a broker on 127.0.0.1, ports that stay the same over a restart,
a data folder that outlives the process, clean stop and SIGKILL.  What a test wants of the store it says with
RocketMQ's own keys (`Settings`); for GantryMQ they go through the same broker.conf.
"""

import contextlib
import json
import os
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from interop import prepare
from interop.processes import Child
from testkit.patience import HANG_S
from testkit.ports import VIP, free_port

Settings = Mapping[str, str | int]

# Small files, so that a few thousand messages already roll segments and queue files.
SETTINGS: Settings = {
    "brokerClusterName": "DefaultCluster",
    "brokerName": "broker-a",
    "brokerId": 0,
    "brokerIP1": "127.0.0.1",
    "autoCreateTopicEnable": "true",
    "autoCreateSubscriptionGroup": "true",
    "flushDiskType": "ASYNC_FLUSH",
    "maxMessageSize": 1024 * 1024,
    "mappedFileSizeCommitLog": 4 * 1024 * 1024,
    "mappedFileSizeConsumeQueue": 20 * 2000,
    "maxHashSlotNum": 40_000,
    "maxIndexNum": 160_000,
    "flushConsumerOffsetInterval": 500,
    "fileReservedTime": 72,
    "deleteWhen": "04",
    "transactionCheckInterval": 2000,
    "transactionTimeOut": 1000,
}
CHOSEN = os.environ.get("GANTRY_INTEROP_SERVER", "gantry")  # or apache-4.9.7, apache-5.x


class Server(Protocol):
    """One name server and one broker."""

    name: str
    name_server: str
    broker: str

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...
    def close(self) -> None: ...


def free_ports() -> int:
    """A port P with P-2 (the VIP channel), P and P+1 (replication of 4.9) held for it."""
    return free_port(VIP, 1)


def rpc(
    address: str, code: int, ext: Mapping[str, str] | None = None, timeout_s: float = 30.0, body: bytes = b""
) -> tuple[dict[str, object], bytes]:
    """One request by hand: the header and the body of its reply."""
    host, port = address.rsplit(":", 1)
    header = json.dumps(
        {"code": code, "language": "JAVA", "version": 401, "opaque": 1, "flag": 0, "extFields": dict(ext or {})}
    ).encode()
    with socket.create_connection((host, int(port)), timeout_s) as connection:
        connection.sendall(struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body)
        stream = connection.makefile("rb")
        length, header_length = struct.unpack(">II", stream.read(8))
        reply = stream.read(length - 4)
    return json.loads(reply[: header_length & 0xFFFFFF]), reply[header_length & 0xFFFFFF :]


def wait_until_routed(name_server: str, topic: str = "TBW102", timeout_s: float = HANG_S) -> None:
    """Until the name server knows a route for a topic; a broker that listens need not be registered yet."""
    deadline = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(OSError, struct.error):
            if rpc(name_server, 105, {"topic": topic})[0]["code"] == 0:
                return
        assert time.monotonic() < deadline, f"{name_server} has no route for {topic} after {timeout_s:.0f} s"
        time.sleep(0.05)


def create_topic(server: Server, topic: str, queues: int = 4) -> None:
    """By UPDATE_AND_CREATE_TOPIC, until the name server knows it: ali-ons never asks for the default topic."""
    ext = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues)}
    ext |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    header, _ = rpc(server.broker, 17, ext)
    assert header["code"] == 0, header
    wait_until_routed(server.name_server, topic)


def java_home(home: Path) -> list[str]:
    """Java asks the password file for the home folder, not $HOME."""
    return [f"-Duser.home={home}", f"-Drocketmq.home.dir={home}", "-XX:MaxDirectMemorySize=512m"]


class Apache:
    """Apache's NamesrvStartup and BrokerStartup, unmodified, a JVM each.

    `heap` and `flags` are those of the broker's JVM; a broker `beside` another one has that one's name server.
    """

    def __init__(
        self,
        version: str,
        home: Path,
        data: Path,
        settings: Settings | None = None,
        heap: str = "512m",
        flags: Sequence[str] = prepare.TEST_FLAGS,
        beside: "Apache | None" = None,
    ) -> None:
        self.name = f"apache-{version}"
        self._heap, self._flags = heap, flags
        self._version = version
        self._home = home
        self._data = data
        self._settings = settings or {}
        port = free_ports()
        self.name_server = f"127.0.0.1:{free_ports()}" if beside is None else beside.name_server
        self.broker = f"127.0.0.1:{port}"
        self._has_own_name_server = beside is None
        self._name_server_process: Child | None = None
        self._broker_process: Child | None = None

    def give(self, data: Path, settings: Settings) -> None:
        """Another folder for the next start of the broker; the name server stays."""
        self._data, self._settings = data, settings

    @property
    def broker_pid(self) -> int | None:
        """The broker's own process, for those who measure it."""
        return None if self._broker_process is None else self._broker_process.process.pid

    def _java(self, name: str, main: str, config: Settings, heap: str, flags: Sequence[str]) -> Child:
        (self._home / "conf").mkdir(parents=True, exist_ok=True)
        for kind in ("namesrv", "broker"):  # 4.9 insists on these files
            (self._home / "conf" / f"logback_{kind}.xml").write_text("<configuration/>")
        path = self._home / f"{name}.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        command = prepare.java_command(self._version, main, "-c", str(path), heap=heap, flags=flags)
        command[1:1] = java_home(self._home)
        child = Child(name, command, self._home, {"ROCKETMQ_HOME": str(self._home)})
        while "boot success" not in child.line(HANG_S):
            pass
        return child

    def start_name_server(self) -> None:
        """Start the name server of its own, if it has one that does not run."""
        if self._has_own_name_server and self._name_server_process is None:
            own: Settings = {
                "listenPort": self.name_server.rsplit(":", 1)[1],
                "bindAddress": "127.0.0.1",
                "kvConfigPath": str(self._home / "kv.json"),
            }
            self._name_server_process = self._java(
                "namesrv", "org.apache.rocketmq.namesrv.NamesrvStartup", own, "512m", prepare.TEST_FLAGS
            )

    def start(self) -> None:
        self.start_name_server()
        port = int(self.broker.rsplit(":", 1)[1])
        config: Settings = {
            **SETTINGS,
            "timerWheelEnable": "false",  # its files would be 100 MB of zeros
            **self._settings,
            "namesrvAddr": self.name_server,
            "bindAddress": "127.0.0.1",
            "listenPort": port,
            "haListenPort": port + 1,
            "storePathRootDir": str(self._data),
            "storePathCommitLog": str(self._data / "commitlog"),
            "registerNameServerPeriod": 10_000,
            "transactionOpBatchInterval": 100,  # 5.x asks about what has ended until its batch is written
            "waitTimeMillsInSendQueue": 20_000,  # not "broker busy" after 200 ms on a machine that others use too
            "osPageCacheBusyTimeOutMills": 20_000,
        }
        main = "org.apache.rocketmq.broker.BrokerStartup"
        self._broker_process = self._java("broker", main, config, self._heap, self._flags)
        wait_until_routed(self.name_server)

    def stop(self) -> None:
        self._end(kill=False)

    def kill(self) -> None:
        self._end(kill=True)

    def _end(self, *, kill: bool) -> None:
        """The broker goes as asked; the name server, which keeps nothing, goes with close()."""
        if self._broker_process is not None:
            if kill:
                self._broker_process.kill()
            self._broker_process.stop()
            self._broker_process = None

    def close(self) -> None:
        """The end of a test run: nobody looks at the folder any more, so nothing waits for a clean shutdown."""
        self.kill()
        if self._name_server_process is not None:
            self._name_server_process.kill()
            self._name_server_process.stop()
            self._name_server_process = None


class Gantry:
    """`gantry standalone` as a user starts it."""

    name = "gantry"

    def __init__(self, home: Path, data: Path, settings: Settings | None = None) -> None:
        self._home = home
        self._data = data
        self._settings = settings or {}
        port = free_ports()
        self.name_server = f"127.0.0.1:{free_ports()}"
        self.broker = f"127.0.0.1:{port}"
        self._process: Child | None = None

    def start(self) -> None:
        self._home.mkdir(parents=True, exist_ok=True)
        config = self._home / "broker.conf"
        port = self.broker.rsplit(":", 1)[1]
        lines = {**SETTINGS, **self._settings, "listenPort": port}
        config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        command = [*gantry_command(), "standalone", "--data", str(self._data), "--config", str(config)]
        command += ["--nameserver-port", self.name_server.rsplit(":", 1)[1], "--broker-port", port, "--http-port", "0"]
        command += ["--grpc-port", "-1", "--queues-port", "-1"]  # `proxies` has the one for RocketMQ 5's clients
        self._process = Child("gantry", command, self._home)
        line = ""
        while not line.startswith("ready "):
            line = self._process.line(HANG_S)
        found = dict(field.split("=", 1) for field in line.split()[1:])
        self.name_server, self.broker = found["nameserver"], found["broker"]
        wait_until_routed(self.name_server)

    def stop(self) -> None:
        if self._process is not None:
            status = self._process.stop()
            tail = self._process.tail()
            self._process = None
            assert status == 0, f"gantry standalone ended with {status} after SIGTERM; {tail}"

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.stop()
            self._process = None

    def close(self) -> None:
        self.stop()


def gantry_command() -> list[str]:
    """The console script beside the interpreter that runs the tests."""
    script = Path(sys.executable).parent / "gantry"
    return [str(script)] if script.exists() else [sys.executable, "-m", "gantry.cli"]


def make(kind: str, home: Path, data: Path, settings: Settings | None = None) -> Apache | Gantry:
    """`gantry`, `apache-4.9.7` or `apache-5.x`."""
    if kind == "gantry":
        return Gantry(home, data, settings)
    return Apache(kind.removeprefix("apache-"), home, data, settings)
