"""The folder of a local cluster: `local.json`, one folder for each member, registers, secret, logs.

    local.json      layout, processes that are kept down, cuts, and the supervisor's process
    registers/      one file for each group; beside it NAME.json.teardown while the cluster stops
    <member>/       broker.yaml (its configuration), store/, reach -> ../registers (gone while it is cut off)
    <process>.out   its standard output of the newest start; <process>.log: its log

Every command that changes something replaces `local.json` atomically, under a lock.  The supervisor reads it regularly.
All state is in it, so it is complete even after the supervisor was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gantry.broker.settings.profiles import PROFILES
from gantry.errors import ConfigError, StoreError
from gantry.local.cuts import OUTSIDE, Cuts, read_cuts
from gantry.local.layout import Layout, Links, Ports, Who
from gantry.model import documents
from gantry.replication.registerfile import TEARDOWN
from gantry.store import statefile
from gantry.store.disk import RealDisk

_NOWHERE = "cut"


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """The contents of `local.json`; members are given by name."""

    layout: Layout
    down: frozenset[str] = frozenset()  # not to be started again
    cuts: Cuts = Cuts()  # noqa: RUF009  a value
    supervisor: str = ""  # `processes.ProcessIdentity` as text; empty: none


class Folder:
    """The folder of one cluster; no file in it is kept open."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()

    @property
    def exists(self) -> bool:
        """Whether a cluster was made here."""
        return (self.path / "local.json").exists()

    @property
    def registers(self) -> Path:
        """The folder of the groups' registers."""
        return self.path / "registers"

    @property
    def carried_out(self) -> Path:
        """The file in which `wires` writes the cuts that are in effect."""
        return self.path / "wires.json"

    @property
    def secret_file(self) -> Path:
        """The file with the secret of members and coordinator."""
        return self.path / "secret"

    def out(self, name: str) -> Path:
        """Return the file of a process's standard output."""
        return self.path / f"{name}.out"

    def log(self, name: str) -> Path:
        """Return the file of a process's log."""
        return self.path / f"{name}.log"

    def member(self, who: Who) -> Path:
        return self.path / who.name

    def make(self, layout: Layout) -> None:
        """Make the folder of a new cluster: the secret first, `local.json` last."""
        self.registers.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self.secret_file.exists():
            descriptor = os.open(self.secret_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(secrets.token_hex(32) + "\n")
        self.save(ClusterFile(layout))

    def load(self) -> ClusterFile:
        """Read `local.json`. ConfigError where no cluster was made, StoreError for a damaged file."""
        try:
            source = statefile.read_newest(RealDisk(), str(self.path / "local.json"))
            if source is None:
                raise ConfigError(f"{self.path}: no local cluster; gantry local up --dir {self.path} makes one")
            return _read(source)
        except (ValueError, KeyError) as error:
            text = f"{self.path}/local.json: {error}; remove it, or the whole folder, to begin again"
            raise StoreError(text) from error

    def save(self, state: ClusterFile) -> None:
        """Replace `local.json` durably; the caller holds the lock."""
        table: dict[str, object] = {
            "layout": state.layout.to_document(),
            "down": sorted(state.down),
            "cuts": state.cuts.to_document(),
            "supervisor": state.supervisor,
        }
        statefile.replace(RealDisk(), str(self.path / "local.json"), statefile.to_bytes(table), for_newest=True)

    def change(self, how: Callable[[ClusterFile], ClusterFile]) -> ClusterFile:
        """Read, change and replace `local.json` under the lock. Return the new state."""
        with self._locked():
            state = how(self.load())
            self.save(state)
            return state

    def keep_down(self, *names: str) -> ClusterFile:
        """Record that these processes are not started again. Return the new state."""
        return self.change(lambda state: replace(state, down=state.down | set(names)))

    def let_run(self, *names: str) -> ClusterFile:
        """Record that these processes are started again when they are down. Return the new state."""
        return self.change(lambda state: replace(state, down=state.down - set(names)))

    def set_cuts(self, cuts: Cuts) -> ClusterFile:
        """Record exactly these cuts, and open or close the members' links to the registers. Return the new state."""
        state = self.change(lambda state: replace(state, cuts=cuts))
        for who in state.layout.members():
            self.reach(who, not cuts.is_apart(who.name, OUTSIDE))
        return state

    def say_carried_out(self, cuts: Cuts) -> None:
        """Write that exactly these cuts are in effect."""
        unfinished = self.carried_out.with_suffix(".new")
        self.write(unfinished, cuts.to_document())
        unfinished.rename(self.carried_out)

    def are_cut(self) -> Cuts | None:
        """Return the cuts that are in effect; None before `wires` has written any."""
        try:
            found = json.loads(self.carried_out.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return read_cuts(documents.document(found, str(self.carried_out)))

    def tear_down(self, is_wanted: bool) -> None:
        """Mark every group as being stopped, so that a master need not hand over; or remove the marks."""
        for group in sorted({who.group_name for who in self.load().layout.members()}):
            sign = self.registers / f"{group}.json{TEARDOWN}"
            if is_wanted:
                sign.touch()
            else:
                sign.unlink(missing_ok=True)

    def reach(self, who: Who, is_open: bool) -> None:
        """Open or close a member's link to the registers, by one rename."""
        folder = self.member(who)
        folder.mkdir(exist_ok=True)
        unfinished = folder / "reach.new"
        unfinished.unlink(missing_ok=True)
        unfinished.symlink_to("../registers" if is_open else _NOWHERE)
        unfinished.rename(folder / "reach")

    def write(self, path: Path, document: object) -> None:
        """Write a JSON document, which processes of the cluster may also read as YAML."""
        path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.path / "local.lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _read(source: documents.Document) -> ClusterFile:
    given = documents.mapping(source, "layout")
    profile = documents.text(given, "profile")
    if profile not in PROFILES:
        raise ValueError(f"profile {profile!r}")
    ports = [each for each in documents.array(given, "ports") if isinstance(each, int)]
    layout = Layout(
        documents.text(given, "uid"),
        documents.integer(given, "groups"),
        documents.integer(given, "replicas"),
        profile,
        documents.text(given, "timers"),
        Links(documents.text(given, "links")),
        documents.integer(given, "net"),
        Ports(*ports),
        documents.texts(given, "settings"),
    )
    cuts = read_cuts(documents.mapping(source, "cuts"))
    return ClusterFile(layout, _names(source, "down"), cuts, documents.text(source, "supervisor"))


def _names(source: documents.Document, name: str) -> frozenset[str]:
    return frozenset(str(each) for each in documents.array(source, name))
