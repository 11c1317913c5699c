"""MNS's own clients, and the server of HTTP queues that they meet.

All drivers take the same commands; Node.js's client has no calls for subscriptions, and only Java's has transactions.
"""

from functools import partial
from pathlib import Path

from interop import prepare, servers
from interop.clients import Client
from interop.processes import Child, Driver
from interop.proxies import KEYS
from testkit.patience import HANG_S
from testkit.ports import free_port

USER, SECRET = "interop", "a-secret-of-the-tests"


class GantryQueues:
    """`gantry queues` as a user starts it, with one user; it has the same port after a restart."""

    def __init__(self, home: Path, name_server: str) -> None:
        home.mkdir(parents=True, exist_ok=True)
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._home = home
        for name, text in (("handle.key", KEYS), ("users", f"{USER} {SECRET}\n")):
            (home / name).write_text(text)
            (home / name).chmod(0o600)
        self._command = [*servers.gantry_command(), "queues", "--namesrv", name_server, "--bind", "127.0.0.1"]
        self._command += ["--queues-port", str(port), "--http-port", "-1"]
        self._command += ["--handle-key-file", str(home / "handle.key"), "--queues-users", str(home / "users")]
        self._process: Child | None = None

    def start(self) -> None:
        """Start it when it does not run; return when it serves."""
        if self._process is None:
            self._process = Child("queues", self._command, self._home)
            while not self._process.line(HANG_S).startswith("ready "):
                pass

    def stop(self) -> None:
        """End it as an operator does."""
        if self._process is not None:
            status, tail = self._process.stop(), self._process.tail()
            self._process = None
            assert status == 0, f"gantry queues ended with {status} after SIGTERM; {tail}"

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.stop()
            self._process = None


def _command(sdk: str, home: Path) -> tuple[list[str], dict[str, str]]:
    """Return how the driver of a client is started, without its arguments, and its environment."""
    if sdk == "node":
        script = str(prepare.HERE / "mns" / "driver.js")
        modules = {"NODE_PATH": str(prepare.mns_node() / "node_modules")}
        return ["node", "--max-old-space-size=128", script], modules
    if sdk == "java":
        flags = ["-Xmx128m", *prepare.TEST_FLAGS, f"-Duser.home={home}", "-Dfile.encoding=UTF-8"]
        return ["java", *flags, "-cp", prepare.mns_java(), "Mns"], {}
    python = prepare.mns_sdk() if sdk == "sdk" else prepare.mns_old()
    return [str(python), str(prepare.HERE / "mns" / "driver.py")], {}


def start(sdk: str, home: Path, url: str, user: str = USER, secret: str = SECRET) -> Driver:
    """Start the driver of a client; with a wrong user or secret for a test of that."""
    command, environment = _command(sdk, home)
    return Driver(f"mns-{sdk}", [*command, url, user, secret], home, environment)


TOOLS = {"sdk": "cpp", "old": "cpp", "node": "node", "java": "java"}  # what `prepare` needs for each
CLIENTS = {sdk: Client(f"mns-{sdk}", partial(start, sdk), ()) for sdk in TOOLS}
