"""Networks of a test cluster: a namespace per node, one for the control plane with the bridge that joins them all.

    10.10.0.1      control plane         10.244.I.0/24    pods of node I
    10.10.0.1I     node I                10.96.0.0/16     services

Nothing of it is seen from outside, so clusters may use the same addresses side by side; names begin with a prefix that
holds the process that made them, and what a dead process left behind is removed by the next one.  MAC addresses are
fixed and neighbours permanent: to talk to a node that is gone means no answer, as in a real network, and not an error.

    partition    the bridge does not carry the node any more; the node sees nothing of it
    unplug       the node's cable is out: it has no carrier
    cut          packets of one node do not reach another one, everything else goes on
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from ctypes import CDLL, get_errno
from pathlib import Path

SUBNET = "10.10.0"
PODS = "10.244"
SERVICES = "10.96.0.0/16"
DNS = "10.96.0.10"
_NETNS = Path("/run/netns")
_NOBODY = "02:00:00:00:00:ff"
_STEP_S = 30.0
_CONNECT_S = 30.0


class Network:
    """See the module; nodes are counted from 1."""

    def __init__(self, nodes: int) -> None:
        self.nodes = range(1, nodes + 1)
        self._prefix = f"gmq{os.getpid()}"

    @property
    def inside(self) -> tuple[str, ...]:
        """Prefix of a command that runs in the control plane's network."""
        return ("nsenter", f"--net={_NETNS / self._name(0)}")

    def path(self, node: int) -> Path:
        """The namespace of a node; 0: the control plane's."""
        return _NETNS / self._name(node)

    def address(self, node: int) -> str:
        """Of a node; 0: the control plane's."""
        return f"{SUBNET}.1{node}" if node else f"{SUBNET}.1"

    def up(self) -> None:
        """Make it all."""
        clear_what_the_dead_left()
        here, gateway = self._name(0), self.address(0)
        _run("ip", "netns", "add", here)
        _ip(here, "link set lo up", f"link add br0 address {_mac(0)} type bridge")
        _ip(here, f"addr add {gateway}/24 dev br0", "link set br0 up")
        for node in self.nodes:
            _run("ip", "netns", "add", self._name(node))
        for node in self.nodes:
            self._join(node)

    def down(self) -> None:
        """Remove it all."""
        for node in (0, *self.nodes):
            with suppress(subprocess.CalledProcessError):
                _run("ip", "netns", "del", self._name(node))

    def partition(self, node: int) -> None:
        """Nothing passes, and the node has its carrier."""
        _run(*self.inside, "bridge", "link", "set", "dev", f"v{node}", "state", "0")

    def heal(self, node: int) -> None:
        """The end of a partition."""
        _run(*self.inside, "bridge", "link", "set", "dev", f"v{node}", "state", "3")

    def unplug(self, node: int) -> None:
        """The cable is out; the switch's side goes down, since the node would lose its routes with its own."""
        _ip(self._name(0), f"link set v{node} down")

    def plug(self, node: int) -> None:
        """The cable is in again."""
        _ip(self._name(0), f"link set v{node} up")

    def cut(self, node: int, other: int) -> None:
        """What `node` sends to `other` goes nowhere."""
        _ip(self._name(node), f"neigh replace {self.address(other)} lladdr {_NOBODY} dev eth0 nud permanent")

    def join(self, node: int, other: int) -> None:
        """The end of a cut."""
        _ip(self._name(node), f"neigh replace {self.address(other)} lladdr {_mac(other)} dev eth0 nud permanent")

    def connect(self, address: tuple[str, int], timeout: float = _CONNECT_S, *_: object) -> socket.socket:
        """`socket.create_connection` from within the control plane's network."""
        return in_namespace(self.path(0), lambda: socket.create_connection(address, timeout))

    def _join(self, node: int) -> None:
        here, there, gateway = self._name(0), self._name(node), self.address(0)
        _ip(here, f"link add v{node} type veth peer name eth0 netns {there}", f"link set v{node} master br0 up")
        _ip(there, "link set lo up", f"link set eth0 address {_mac(node)} up")
        _ip(
            there,
            f"addr add {self.address(node)}/24 dev eth0",
            f"route add default via {gateway}",
            f"neigh replace {gateway} lladdr {_mac(0)} dev eth0 nud permanent",
        )
        _ip(
            here,
            f"route add {PODS}.{node}.0/24 via {self.address(node)}",
            f"neigh replace {self.address(node)} lladdr {_mac(node)} dev br0 nud permanent",
        )
        for other in self.nodes:
            if other != node:
                _ip(there, f"route add {PODS}.{other}.0/24 via {self.address(other)}")
                self.join(node, other)
        switches = ["net.ipv4.ip_forward=1", "net.bridge.bridge-nf-call-iptables=1"]
        _run("nsenter", f"--net={self.path(node)}", "sysctl", "-qw", *switches)

    def _name(self, node: int) -> str:
        return f"{self._prefix}-n{node}"


def in_namespace(path: Path, make: Callable[[], socket.socket]) -> socket.socket:
    """A socket belongs to the network in which it was made, anyone who uses it: a thread goes there to make it."""
    made: list[socket.socket | OSError] = []

    def go() -> None:
        libc = CDLL(None, use_errno=True)
        with path.open() as namespace:
            if libc.setns(namespace.fileno(), 0x40000000):  # CLONE_NEWNET
                made.append(OSError(get_errno(), f"{path} cannot be entered"))
                return
        try:
            made.append(make())
        except OSError as error:
            made.append(error)

    thread = threading.Thread(target=go)
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]


def clear_what_the_dead_left() -> None:
    """Namespaces of processes that are not there any more."""
    for path in _NETNS.glob("gmq*-n*") if _NETNS.exists() else ():
        found = re.fullmatch(r"gmq(\d+)-n\d+", path.name)
        if found and not Path("/proc", found[1]).exists():
            _run("ip", "netns", "del", path.name)


def _ip(namespace: str, *commands: str) -> None:
    for command in commands:
        _run("ip", "-n", namespace, *command.split())


def _run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=_STEP_S, stdin=subprocess.DEVNULL)


def _mac(node: int) -> str:
    return f"02:00:0a:0a:00:{node + 1:02x}"
