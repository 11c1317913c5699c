"""The proxies that RocketMQ 5's clients meet: ours, or Apache's own to prove that the drivers are right.

Both have a port that stays the same over a restart, and take plain text and TLS on it.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from interop import prepare, servers
from interop.processes import Child
from testkit.patience import HANG_S
from testkit.ports import free_port

KEYS = "9f3c1d5a7b8e2064c1f09a8d7e6b5c4a39f3c1d5a7b8e2064c1f09a8d7e6b5c4\n"


class Proxy(Protocol):
    """One proxy in front of one cluster."""

    endpoints: str
    certificate: Path  # its own, which nobody signed

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...


class GantryProxy:
    """`gantry proxy` as a user starts it; its keys outlive it, as those of several proxies do."""

    def __init__(self, home: Path, name_server: str) -> None:
        home.mkdir(parents=True, exist_ok=True)
        port = free_port()
        self.endpoints = f"127.0.0.1:{port}"
        self.certificate = home / "tls" / "proxy-cert.pem"
        self._home = home
        keys = home / "handle.key"
        keys.write_text(KEYS)
        keys.chmod(0o600)
        self._command = [*servers.gantry_command(), "proxy", "--namesrv", name_server, "--bind", "127.0.0.1"]
        self._command += ["--grpc-port", str(port), "--http-port", "-1", "--handle-key-file", str(keys)]
        self._command += ["--tls-self-signed", str(self.certificate.parent)]
        self._process: Child | None = None

    def start(self) -> None:
        """Start it when it does not run; return when it serves."""
        if self._process is not None:
            return
        self._process = Child("proxy", self._command, self._home)
        while not self._process.line(HANG_S).startswith("ready "):
            pass

    def stop(self) -> None:
        """End it as an operator does."""
        if self._process is not None:
            status = self._process.stop()
            tail = self._process.tail()
            self._process = None
            assert status == 0, f"gantry proxy ended with {status} after SIGTERM; {tail}"

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.stop()
            self._process = None


class ApacheProxy:
    """Apache's ProxyStartup in cluster mode, unmodified."""

    def __init__(self, home: Path, name_server: str) -> None:
        home.mkdir(parents=True, exist_ok=True)
        port = free_port(1)
        self.endpoints = f"127.0.0.1:{port}"
        self.certificate = home / "unknown.pem"  # a test certificate out of its jars
        self._home = home
        (home / "conf").mkdir(exist_ok=True)
        config = home / "proxy.json"
        settings = {"rocketMQClusterName": "DefaultCluster", "proxyMode": "CLUSTER", "namesrvAddr": name_server}
        settings |= {"grpcServerPort": port, "remotingListenPort": port + 1, "proxyName": "interop"}
        config.write_text(json.dumps(settings))
        flags = [*prepare.TEST_FLAGS, *prepare.JAVA_FLAGS, *servers.java_home(home)]
        self._command = ["java", "-Xmx512m", *flags, "-cp", prepare.apache_proxy()]
        self._command += ["org.apache.rocketmq.proxy.ProxyStartup", "-pc", str(config), "-n", name_server]
        self._process: Child | None = None

    def start(self) -> None:
        """Start it when it does not run; return when it serves."""
        if self._process is not None:
            return
        self._process = Child("proxy", self._command, self._home, {"RMQ_PROXY_HOME": str(self._home)})
        while "startup successfully" not in self._process.line(HANG_S):
            pass

    def stop(self) -> None:
        """End it; a JVM is not asked how it ended."""
        self.kill()

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.stop()
            self._process = None


def make(home: Path, name_server: str) -> GantryProxy | ApacheProxy:
    """The proxy that belongs to the server of this run."""
    return (GantryProxy if servers.CHOSEN == "gantry" else ApacheProxy)(home, name_server)


@contextmanager
def serving(home: Path, name_server: str) -> Iterator[Proxy]:
    """One that runs for a while."""
    made = make(home, name_server)
    try:
        made.start()
        yield made
    finally:
        made.kill()
