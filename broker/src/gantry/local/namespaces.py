"""A network namespace for each member, joined by a bridge; a member is cut off by taking its interface down.

A cut member is like a machine behind a dead switch: no packets arrive in either direction, and no connection is
refused. For a cut in one direction the sender gets a wrong link-layer address of the receiver, so the bridge drops the
packets.

Needs root and the program `ip`.  Names of interfaces and namespaces begin with `gq` and six digits of the cluster's
uid, and only those are ever removed.  198.18.0.0/15 is reserved for network tests, so no real network is shadowed.
"""

from __future__ import annotations

import os
import shutil
import subprocess

from gantry.errors import GantryError
from gantry.local.cuts import OUTSIDE, Cuts, Way
from gantry.local.layout import Layout, Who

_WITHIN_S = 20.0
_NOBODY = "02:00:00:00:00:fe"  # no interface has this address


def can_be() -> bool:
    """Return whether this process may make network namespaces; it tries, because root in a container may lack the
    right.
    """
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    trial = f"gq-try-{os.getpid()}"
    if _run("ip", "netns", "add", trial).returncode != 0:
        return False
    has_cable = _run("ip", "link", "add", f"gqt{os.getpid()}", "type", "veth", "peer", "name", "p", "netns", trial)
    _run("ip", "netns", "del", trial)
    return has_cable.returncode == 0


def nets_taken() -> frozenset[int]:
    """Return the numbers N of the networks 198.18.N.0/24 that this machine has already."""
    found = _run("ip", "-o", "-4", "addr").stdout.split()
    parts = [each.split(".") for each in found if each.startswith("198.18.")]
    return frozenset(int(part[2]) for part in parts if len(part) == 4)


def make(layout: Layout) -> None:
    """Make bridge, namespaces and interfaces, as far as they do not exist."""
    bridge = _bridge(layout)
    if not _exists(bridge):
        _must("ip", "link", "add", bridge, "type", "bridge")
        _must("ip", "addr", "add", f"{layout.host}/24", "dev", bridge)
        _must("ip", "link", "set", bridge, "up")
    for who in layout.members():
        space, cable = _space(layout, who), _cable(layout, who)
        if _exists(cable):
            continue
        _must("ip", "netns", "add", space)
        _must("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
        _must("ip", "link", "set", cable, "master", bridge, "up")
        _must("ip", "-n", space, "addr", "add", f"{layout.address(who)}/24", "dev", "eth0")
        _must("ip", "-n", space, "link", "set", "eth0", "up")
        _must("ip", "-n", space, "link", "set", "lo", "up")


def remove(layout: Layout) -> None:
    """Remove bridge, namespaces and interfaces, as far as they exist."""
    for who in layout.members():
        _run("ip", "link", "del", _cable(layout, who))
        _run("ip", "netns", "del", _space(layout, who))
    _run("ip", "link", "del", _bridge(layout))


def set_cuts(layout: Layout, cuts: Cuts) -> None:
    """Apply exactly these cuts: interfaces down or up, and wrong addresses for cuts in one direction."""
    addresses = {who.name: layout.address(who) for who in layout.members()} | {OUTSIDE: layout.host}
    for who in layout.members():
        _must("ip", "link", "set", _cable(layout, who), "down" if who.name in cuts.members else "up")
    places = [(who.name, ["ip", "-n", _space(layout, who)], "eth0") for who in layout.members()]
    for name, command, device in [*places, (OUTSIDE, ["ip"], _bridge(layout))]:
        wrong = _must(*command, "neigh", "show", "dev", device, "nud", "permanent").split("\n")
        there = {line.split()[0] for line in wrong if line}
        wanted = {address for end, address in addresses.items() if Way(name, end) in cuts.ways}
        for address in there - wanted:
            _must(*command, "neigh", "del", address, "dev", device)
        for address in wanted - there:
            far = [address, "lladdr", _NOBODY, "dev", device, "nud", "permanent"]
            _must(*command, "neigh", "replace", *far)


def inside(layout: Layout, who: Who) -> list[str]:
    """Return the beginning of a command that runs in a member's network."""
    return ["ip", "netns", "exec", _space(layout, who)]


def _bridge(layout: Layout) -> str:
    return f"gq{layout.short}"


def _cable(layout: Layout, who: Who) -> str:
    return f"gq{layout.short}{who.group_name[-1]}{who.ordinal}"


def _space(layout: Layout, who: Who) -> str:
    return f"gq{layout.short}-{who.name}"


def _exists(link: str) -> bool:
    return _run("ip", "link", "show", link).returncode == 0


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_WITHIN_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GantryError(f"{' '.join(command)}: {error}") from error


def _must(*command: str) -> str:
    done = _run(*command)
    if done.returncode:
        raise GantryError(f"{' '.join(command)}: {done.stderr.strip()}; --links proxy needs no network namespaces")
    return done.stdout
