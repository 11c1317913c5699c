"""The register of a simulated group: a service on a host of its own, asked over ways that may be cut.

`RegisterService` is what a file or an API server is: one record, changed by compare-and-set, and what goes wrong with
it.  `Door` is one process's way to it, and implements `replication.register.Register`.  A request may be

    refused      without being looked at
    lost         on its way there; the sender cannot tell that from the next two
    unanswered   carried out, the answer is lost
    late         carried out long after the sender gave up, if its version still fits then
    slow         carried out at once, or when half of the time has passed; the answer takes as long as it takes

and the record may be deleted, or be set back to what it once was: with a version that never was, since two records
with one version are something that no compare-and-set survives.  `on_change` tells every change, for who checks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gantry.errors import GantryError, OutcomeUnknownError
from gantry.replication.record import RegisterRecord
from gantry.replication.register import (
    RegisterConflictError,
    RegisterGoneError,
    RegisterUnavailableError,
    Seen,
)
from simulation.revisions import recorded

if TYPE_CHECKING:
    from simulation.network import Network
    from simulation.world import World

HOST = "10.0.5.1"
TIMEOUT_S = 0.5
_LATE_S = (0.6, 20.0)
Act = Callable[[], "Seen | None"]
Told = Callable[[str, "RegisterRecord | None", "RegisterRecord | None"], None]  # how, before, after


@dataclass(slots=True)
class Troubles:
    """Shares of requests that go wrong in this way; seconds that reads and writes take."""

    refused: float = 0.0
    lost: float = 0.0
    unanswered: float = 0.0
    late: float = 0.0
    read_s: float = 0.0
    write_s: float = 0.0
    refuses: str = ""  # "reads" or "writes": none of these is carried out


class RegisterService:
    """The record and its faults."""

    def __init__(self, world: World, network: Network) -> None:
        self.seen: Seen | None = None
        self.troubles = Troubles()
        self.past: list[RegisterRecord] = []
        self.on_change: list[Told] = []
        self._world = world
        self._network = network
        self._versions = 0

    def door(self, host: str, within_s: float = TIMEOUT_S) -> Door:
        """The way to it for processes of one host, which wait so long for an answer."""
        return Door(self, self._network, host, within_s)

    @property
    def record(self) -> RegisterRecord | None:
        """What it holds."""
        return self.seen.record if self.seen is not None else None

    # -- faults

    def delete(self) -> None:
        """Somebody removed it by hand."""
        self._change("deleted", None)

    def set_back(self, record: RegisterRecord) -> None:
        """A backup was restored."""
        self._change("restored", record)

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        """Let this happen in a while."""
        self._world.after(seconds, event)

    def keep_late(self, act: Act) -> None:
        """A request that nobody waits for any more gets here after all."""

        def arrive() -> None:
            try:
                act()
            except GantryError:
                return
            self._world.say("register: a late request was carried out")

        self._world.after(self._world.chance.uniform(*_LATE_S), arrive)

    # -- what is asked

    def read(self) -> Seen | None:
        """The record now."""
        return self.seen

    def create(self, record: RegisterRecord) -> Seen:
        """Where there is none."""
        if self.seen is not None:
            raise RegisterConflictError(f"there is one, version {self.seen.version}")
        self._change("created", record)
        return _there(self.seen)

    def write(self, record: RegisterRecord, version: str) -> Seen:
        """On the version that was read."""
        if self.seen is None:
            raise RegisterGoneError("there is no register")
        if self.seen.version != version:
            raise RegisterConflictError(f"version {self.seen.version}, expected {version}")
        self._change("written", record)
        return _there(self.seen)

    def _change(self, how: str, record: RegisterRecord | None) -> None:
        before = self.record
        self._versions += 1
        self.seen = None if record is None else Seen(record, str(self._versions))
        if before is not None:
            self.past.append(before)
        self._tell(how, before, record)
        for told in self.on_change:
            told(how, before, record)

    def _tell(self, how: str, before: RegisterRecord | None, record: RegisterRecord | None) -> None:
        old, new = (None if one is None else story(one) for one in (before, record))
        if old != new or how not in ("written", "created"):
            self._world.say(f"register {how}: {new}")


def story(record: RegisterRecord) -> str:
    """What matters of a record, in a line."""
    in_sync = ",".join(str(member) for member in sorted(record.in_sync))
    return f"epoch {record.epoch} {record.phase.value} holder {record.holder or '-'} in sync {in_sync or '-'}"


class Door:
    """Implements `Register` for the processes of one host."""

    def __init__(self, service: RegisterService, network: Network, host: str, within_s: float) -> None:
        self._service = service
        self._network = network
        self._host = host
        self._within_s = within_s

    async def read(self) -> Seen | None:
        """The record; None when there is none."""
        try:
            return await self._ask(self._service.read, is_read=True)
        except OutcomeUnknownError as error:
            raise RegisterUnavailableError(str(error)) from error

    async def create(self, record: RegisterRecord) -> Seen:
        """Make the register."""
        return _there(await self._ask(lambda: self._service.create(record)))

    async def write(self, record: RegisterRecord, version: str) -> Seen:
        """Replace the record that has this version."""
        left = recorded(record, self._service.record)
        return _there(await self._ask(lambda: self._service.write(left, version)))

    async def close(self) -> None:
        """Nothing is kept open."""

    async def _ask(self, act: Act, is_read: bool = False) -> Seen | None:
        answer: asyncio.Future[Seen | GantryError | None] = asyncio.get_running_loop().create_future()
        self._network.carry(self._host, HOST, lambda: self._arrived(act, answer, is_read))
        try:
            async with asyncio.timeout(self._within_s):
                found = await answer
        except TimeoutError:
            raise OutcomeUnknownError(f"the register did not answer within {self._within_s} s") from None
        if isinstance(found, GantryError):
            raise found
        return found

    def _arrived(self, act: Act, answer: asyncio.Future[Seen | GantryError | None], is_read: bool) -> None:
        troubles, chance = self._service.troubles, self._network.chance
        luck = chance.random() if troubles != Troubles() else 1.0
        if luck < (bound := troubles.refused) or troubles.refuses == ("reads" if is_read else "writes"):
            self._reply(answer, RegisterUnavailableError("try again later"))
        elif luck < (bound := bound + troubles.lost):
            return
        elif luck < (bound := bound + troubles.late):
            self._service.keep_late(act)
        else:
            self._carry_out(act, answer, luck >= bound + troubles.unanswered, is_read)

    def _carry_out(
        self, act: Act, answer: asyncio.Future[Seen | GantryError | None], is_answered: bool, is_read: bool
    ) -> None:
        def carry_out() -> Seen | GantryError | None:
            try:
                return act()
            except GantryError as error:
                return error

        seconds = self._service.troubles.read_s if is_read else self._service.troubles.write_s
        if not seconds:
            found = carry_out()
            if is_answered:
                self._reply(answer, found)
            return
        before_s = self._network.chance.choice((0.0, seconds / 2))
        self._service.after(
            before_s,
            lambda: self._answer_late(answer, carry_out(), seconds - before_s),
        )

    def _answer_late(
        self, answer: asyncio.Future[Seen | GantryError | None], found: Seen | GantryError | None, seconds: float
    ) -> None:
        self._service.after(seconds, lambda: self._reply(answer, found))

    def _reply(self, answer: asyncio.Future[Seen | GantryError | None], found: Seen | GantryError | None) -> None:
        def arrive() -> None:
            loop = answer.get_loop()
            loop.call_soon(lambda: None if answer.done() else answer.set_result(found))

        self._network.carry(HOST, self._host, arrive)


def _there(seen: Seen | None) -> Seen:
    assert seen is not None
    return seen
