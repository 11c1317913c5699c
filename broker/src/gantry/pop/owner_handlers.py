"""KEEP_POP_OWNERS (24041) and END_POP_OWNER (24042): a client that owns leases lives, or ends (see `owners`).

    24041   body {"clientId": "c", "groups": ["g", ...]}; every ten seconds, to each broker where the client pops
    24042   clientId, consumerGroup (left out: all groups that the client named)
            body {"pops": ["name", ...]}: instead, pops whose answers did not come (`gantryPop`); their owners live on

When an owner ends, what it has not acknowledged becomes visible a second later: by new leases without an owner, so its
handles are not valid any more.  The answer comes when these are confirmed.  An owner that just goes silent is noticed
when its leases end.  The queues that it popped in order are free a second later too (`orderly`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from gantry.errors import Refusal
from gantry.leaves import frames
from gantry.leaves.frames import Command
from gantry.model import documents, names
from gantry.pop.book import OpenLease
from gantry.pop.orderly import VISIBLE_AFTER_MS
from gantry.pop.owners import Owners
from gantry.pop.records import LeaseKey, LeaseRecord
from gantry.pop.service import PopService
from gantry.wire import bodies, headers
from gantry.wire.bodies import MalformedBodyError
from gantry.wire.codes import ResponseCode
from gantry.wire.command import refusal, reply

if TYPE_CHECKING:
    from gantry.transport.connection import Connection

_LEASES_AT_ONCE = 16  # half a millisecond
_QUEUES_AT_ONCE = 256
_POPS_MAX = 1_000


class OwnerHandlers:
    """Handlers of requests from clients that own leases."""

    def __init__(self, owners: Owners, service: PopService) -> None:
        self.owners = owners
        self.in_order: Callable[[str, str], Iterator[Refusal | None]] = lambda client_id, group: iter(())
        self._service = service

    def renews(self, lease: OpenLease, now_ms: int) -> int | None:
        """Return when a lease that is due ends instead, in ms; None: it ends now.  For `revive`."""
        clock = self._service.context.clock
        own_ms = clock.time_of(lease.key.pop_ms)
        until_ms = self.owners.renewed_until(lease, clock.monotonic(), own_ms)
        return None if until_ms is None else until_ms + now_ms - own_ms

    def keeps(self, client_id: str, group: str, pop_ms: int) -> bool:
        """Return whether an owner keeps what it popped in order at this time.  For `order_locks`."""
        clock = self._service.context.clock
        return self.owners.keeps(client_id, group, pop_ms, clock.monotonic(), clock.time_of(pop_ms))

    def keep(self, connection: Connection, command: Command) -> Command:
        """KEEP_POP_OWNERS: note that a client lives."""
        asked = bodies.asked(command.body)
        try:
            client_id = documents.text(asked, "clientId")
            groups = [str(group) for group in documents.array(asked, "groups")]
        except ValueError as error:
            raise MalformedBodyError(str(error)) from error
        fault = names.client_fault(client_id) or next(filter(None, map(names.group_fault, groups)), None)
        if fault is not None:
            return reply(command, ResponseCode.INVALID_PARAMETER, fault)
        full = self.owners.keep(client_id, groups, self._service.context.clock.monotonic())
        return reply(command) if full is None else reply(command, ResponseCode.SYSTEM_BUSY, full)

    async def end(self, connection: Connection, command: Command) -> Command | None:
        """END_POP_OWNER: let go of all that a client has, and answer when that is confirmed."""
        header = headers.parse(command.code, command.ext)
        client_id, group, pops = header.text("clientId"), header.text("consumerGroup"), _pops(command)
        if not client_id and not pops:
            return reply(command, ResponseCode.INVALID_PARAMETER, "the client id is empty")
        if not pops:
            self.owners.end(client_id, group)
        for leases in self._owned(client_id, group, pops):
            refused = self._release(leases)
            if refused is not None:
                return refusal(command, refused)
            await asyncio.sleep(0)
        for refused in self.in_order(client_id, group) if not pops else ():
            if refused is not None:
                return refusal(command, refused)
            await asyncio.sleep(0)
        context = self._service.context
        context.acks.park(context.store.written.offset, connection, frames.encode(reply(command)), 1)
        return None

    def _owned(self, client_id: str, group: str, pops: Collection[str]) -> Iterator[list[OpenLease]]:
        """Yield the owner's leases, or those of pops of these names, some of one queue at a time; between two steps
        leases may come and go.
        """
        book = self._service.book
        for number, (queue, _) in enumerate(list(book.queues()), 1):
            if pops:
                owned = [lease for lease in book.of(queue) if lease.pop_name in pops]
            else:
                owned = [lease for lease in book.of(queue) if lease.owner == client_id and group in ("", queue[0])]
            for at in range(0, len(owned), _LEASES_AT_ONCE):
                yield [lease for lease in owned[at : at + _LEASES_AT_ONCE] if lease.open]
            if number % _QUEUES_AT_ONCE == 0:
                yield []

    def _release(self, leases: list[OpenLease]) -> Refusal | None:
        """Let open messages of some leases of one queue become visible soon."""
        self._service.settle()
        leases = [lease for lease in leases if lease.open]
        if not leases:
            return None
        now_ms = self._service.context.clock.now_ms()
        found = [(self._shorter(lease, now_ms), self._log_offset(lease)) for lease in leases]
        return self._service.lease(found, leases[0].revive_queue)

    def _shorter(self, lease: OpenLease, now_ms: int) -> LeaseRecord:
        offsets = tuple(lease.open_offsets())
        pop_ms = self._service.book.pop_ms(lease.key[:3], offsets[0], now_ms)
        key = LeaseKey(*lease.key[:3], offsets[0], pop_ms)
        generation = self._service.generation(key.topic)
        return LeaseRecord(key, now_ms + VISIBLE_AFTER_MS, offsets, "", generation, is_again=True)

    def _log_offset(self, lease: OpenLease) -> int:
        entry = self._service.context.store.reader.entry(*lease.key[1:3], lease.open_offsets()[0])
        return self._service.context.store.dispatched.offset if entry is None else entry[0]


def _pops(command: Command) -> frozenset[str]:
    """Return the names of pops whose leases end; empty when the request is about an owner."""
    if not command.body:
        return frozenset()
    try:
        names = documents.array(bodies.asked(command.body), "pops")
    except ValueError as error:
        raise MalformedBodyError(str(error)) from error
    if len(names) > _POPS_MAX:
        raise MalformedBodyError(f"{len(names)} pops in one request, {_POPS_MAX} are allowed; send several requests")
    return frozenset(name for name in names if isinstance(name, str) and name)
