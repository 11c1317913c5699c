"""The clients under test, one entry each: how its driver is started, and which ways of sending it has.

A client whose library may die by SIGSEGV when a consumer shuts down (the C++ core) gets a process for each test; the
others keep one for the whole run, because a JVM costs more to start than a scenario takes.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from interop import prepare
from interop.processes import Driver
from interop.servers import java_home


@dataclass(frozen=True)
class Client:
    """One client in one version."""

    name: str
    start: Callable[[Path, str], Driver]
    kinds: tuple[str, ...]  # besides the plain synchronous send
    own_process_per_test: bool = False
    reports: bool = False  # its offsets when asked to; by itself Java does so only ten seconds after its start
    ends: bool = False  # what a test began, when asked to


def start_ali_ons(home: Path, name_server: str) -> Driver:
    modules = prepare.ali_ons() / "node_modules"
    script = str(prepare.HERE / "ali_ons" / "driver.js")
    return Driver(
        "ali-ons", ["node", "--max-old-space-size=128", script, name_server], home, {"NODE_PATH": str(modules)}
    )


def start_cpp(python: Path, name: str, home: Path, name_server: str) -> Driver:
    return Driver(name, [str(python), str(prepare.HERE / "cpp" / "driver.py"), name_server], home, life_s=300.0)


def start_java(version: str, home: Path, name_server: str) -> Driver:
    command = prepare.java_command(version, "Driver", name_server)
    command[1:1] = java_home(home)
    return Driver(f"java-{version}", command, home)


JAVA_KINDS = ("oneway", "async", "batch", "selector")
CLIENTS = {
    client.name: client
    for client in (
        Client("ali-ons-3.12", start_ali_ons, ()),
        Client(
            "cpp-2.1.8",
            lambda home, ns: start_cpp(prepare.cpp_2_1_8(), "cpp-2.1.8", home, ns),
            ("oneway", "orderly"),
            True,
        ),
        Client(
            "cpp-2.1.11",
            lambda home, ns: start_cpp(prepare.cpp_2_1_11(), "cpp-2.1.11", home, ns),
            ("oneway", "sharding"),
            True,
        ),
        Client("java-4.9.7", lambda home, ns: start_java("4.9.7", home, ns), JAVA_KINDS, reports=True, ends=True),
        Client("java-5.x", lambda home, ns: start_java("5.x", home, ns), JAVA_KINDS, reports=True, ends=True),
    )
}


class Running:
    """The drivers of one test run, all against one server."""

    def __init__(self, home: Path, name_server: str) -> None:
        self._home = home
        self._name_server = name_server
        self._kept: dict[str, Driver] = {}
        self._ends: set[str] = set()
        self._fresh: list[Driver] = []
        self._number = itertools.count()

    def driver(self, client: Client) -> Driver:
        kept = self._kept.get(client.name)
        if kept is not None and kept.process.poll() is None:
            kept.forget()
            return kept
        if kept is not None:
            kept.quit()
        made = client.start(self._home / f"{client.name}-{next(self._number)}", self._name_server)
        if client.own_process_per_test:
            self._fresh.append(made)
        else:
            self._kept[client.name] = made
            if client.ends:
                self._ends.add(client.name)
        return made

    def end_test(self) -> None:
        while self._fresh:
            self._fresh.pop().quit()
        for name, driver in self._kept.items():
            if name in self._ends and driver.process.poll() is None:
                driver.call("end")

    def end(self) -> None:
        self.end_test()
        for driver in self._kept.values():
            driver.quit()
        self._kept.clear()
