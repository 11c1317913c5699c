"""Asks the homes of sinks for the decision about halves that wait here.

The driver that decides a batch also sends END to every group.  When it dies before its END arrived here, and its query
is not restarted, this group has open halves of a batch that is decided at its sink's home.  Some rows would then be
visible in one group and not in another.  So the group asks the home from time to time, for each sink with halves that
have waited for a while, as it would ask a transactional producer.

The home's answer is confirmed by all its copies.  It is stored like the contents of an END, and the next pass of the
checks ends the halves.  A home that has decided nothing, or does not answer, is asked again in the next round.

A sink without a `sinkId` writes one batch.  When its driver dies between DECIDE and "done", no driver continues it.
After an hour its home sends END to every group instead, and then marks the batch as done.

There is one request at a time and a limited number of sinks in a round; the next round continues with the others.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from typing import TYPE_CHECKING

from gantry.broker.registration_worker import Invoker
from gantry.clock import Clock
from gantry.errors import GantryError, OutcomeUnknownError, RefusedError, UnreachableError
from gantry.model import documents
from gantry.model.route import BrokerData
from gantry.transaction.batch_handlers import ASK
from gantry.transaction.checker import Book
from gantry.transaction.decisions import Decisions
from gantry.transaction.oplog import TransactionState
from gantry.transaction.sinks import Batch
from gantry.wire import bodies
from gantry.wire.codes import RequestCode
from gantry.wire.command import request
from gantry.wire.headers import to_ext

if TYPE_CHECKING:
    from gantry.broker.complaints import Complaints
    from gantry.broker.parts import Parts
    from gantry.broker.settings.config import BrokerConfig

SINKS_A_ROUND = 100
ABANDONED_MS = 3_600_000
_ANSWER_S = 10.0
Place = tuple[str, str]  # sink, home


class SinkHomes:
    """Asks the homes for one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        client: Invoker,
        clock: Clock,
        book: Book,
        decisions: Decisions,
        complaints: Complaints,
    ) -> None:
        self._group = config.name
        self._name_servers = config.name_servers
        # A home is not asked about a batch that may still be written.
        self._patience_ms = int(config.transactions.check_interval_s * 1000)
        self._client = client
        self._clock = clock
        self._book = book
        self._decisions = decisions
        self._complaints = complaints
        self._last: Place = ("", "")  # the last sink of the last round of ask_all()
        self._last_ended = ""  # the last sink of the last round of see_through()

    def waiting(self) -> list[Place]:
        """Return the sinks whose homes are to be asked in the next round."""
        until_ms = self._clock.now_ms() - self._patience_ms
        found = {
            (key.sink, key.home)
            for key, _, since_ms in self._book.parts.counts()
            if key.home != self._group
            and since_ms <= until_ms
            and self._decisions.verdict(key) is TransactionState.OPEN
        }
        places = sorted(found)
        first = bisect_right(places, self._last)
        return (places[first:] + places[:first])[:SINKS_A_ROUND]

    async def ask_all(self) -> None:
        """Ask the home of each waiting sink once, and store the decisions."""
        places = self.waiting()
        if not places:
            return
        try:
            masters = await self._masters()
        except GantryError as error:
            self._complaints.say("homes", f"the homes of sinks could not be read from a name server: {error}")
            return
        for place in places:
            self._last = place
            await self._ask(*place, masters)

    async def _ask(self, sink: str, home: str, masters: dict[str, str]) -> None:
        address = masters.get(home)
        if address is None:
            self._complaints.say(f"home {home}", f"group {home}, the home of sink {sink}, has no master now")
            return
        ext = to_ext(sinkId=sink, batchId=0, action=ASK, home=home)
        try:
            answer = await self._client.invoke(address, request(RequestCode.DECIDE_BATCH, ext), _ANSWER_S)
            if answer.code:
                raise RefusedError(answer.code, answer.remark or "no remark")
            self._learn(sink, home, bodies.loads_object(answer.body))
        except (GantryError, ValueError) as error:
            self._complaints.say(f"home {home}", f"the home {home} of sink {sink} returned no decision: {error}")
            if isinstance(error, UnreachableError | OutcomeUnknownError):
                del masters[home]  # not waited for once more in this round

    def _learn(self, sink: str, home: str, said: dict[str, object]) -> None:
        """Store the home's decision; an aborted part alone is not a decision."""
        number = documents.integer(said, "batch", -1)
        if number < 0:
            return
        parts = None if documents.boolean(said, "done") else [str(part) for part in documents.array(said, "parts")]
        refused = self._decisions.learn(Batch(sink, number, home), parts, self._clock.now_ms())
        if refused is not None:
            self._complaints.say(f"sink {sink}", f"group {home} decided about sink {sink}; refused: {refused.remark}")
        self._decisions.file.save_if_changed()

    def abandoned(self) -> list[str]:
        """Return the sinks whose batch this home completes in the next round, because their driver is gone."""
        until_ms = self._clock.now_ms() - ABANDONED_MS
        known = ((name, self._decisions.find(name)) for name in sorted(self._decisions.keys()))
        names = [
            name
            for name, sink in known
            if sink is not None and sink.is_passing and sink.home == self._group
            if not sink.is_done and sink.decided_ms <= until_ms
        ]
        first = bisect_right(names, self._last_ended)
        return (names[first:] + names[:first])[:SINKS_A_ROUND]

    async def see_through(self) -> None:
        """Send END of each abandoned batch to every group; one that is not complete is repeated in a later round."""
        names = self.abandoned()
        if not names or not self._decisions.is_confirmed:
            return
        try:
            masters = await self._masters()
        except GantryError as error:
            self._complaints.say("homes", f"the groups to end batches in could not be read from a name server: {error}")
            return
        everybody = frozenset(masters) - {self._group}
        for name in names:
            self._last_ended = name
            sink = self._decisions.find(name)
            if sink is None or sink.parts is None:
                continue
            batch = Batch(name, sink.batch, self._group, is_passing=True)
            groups = sorted((everybody | sink.groups) - {self._group})
            has_ended = [await self._has_ended(group, batch, sink.parts, masters) for group in groups]
            if all(has_ended) and name not in self._book.parts.sinks():
                self._decisions.done(batch)
                self._decisions.file.save_if_changed()

    async def _has_ended(self, group: str, batch: Batch, parts: frozenset[str], masters: dict[str, str]) -> bool:
        """Ask a group to end its halves of a batch. Return whether none is left."""
        what = f"batch {batch.number} of sink {batch.sink}"
        address = masters.get(group)
        if address is None:
            self._complaints.say(f"end {group}", f"group {group}, where {what} has to end, has no master now")
            return False
        ext = to_ext(sinkId=batch.sink, batchId=batch.number, home=batch.home, passing=True)
        question = request(RequestCode.END_BATCH, ext, bodies.dumps({"parts": sorted(parts)}))
        try:
            answer = await self._client.invoke(address, question, _ANSWER_S)
            if answer.code:
                raise RefusedError(answer.code, answer.remark or "no remark")
            return documents.integer(bodies.loads_object(answer.body), "left", -1) == 0
        except (GantryError, ValueError) as error:
            self._complaints.say(f"end {group}", f"group {group} did not end {what}: {error}")
            del masters[group]  # not waited for once more in this round
            return False

    async def _masters(self) -> dict[str, str]:
        """Return the masters' addresses by group, from the first name server that answers; GantryError when none
        does.
        """
        error: GantryError | None = None
        for address in self._name_servers:
            try:
                answer = await self._client.invoke(address, request(RequestCode.GET_BROKER_CLUSTER_INFO), _ANSWER_S)
                if answer.code:
                    raise RefusedError(answer.code, answer.remark or "no remark")
                return _masters_in(bodies.loads_object(answer.body))
            except GantryError as failed:
                error = failed
            except ValueError as failed:
                error = GantryError(f"{address}: {failed}")
        raise error or GantryError("no name server is configured")


def _masters_in(said: dict[str, object]) -> dict[str, str]:
    found = {}
    for name, data in documents.mapping(said, "brokerAddrTable").items():
        master = BrokerData.from_json(data).master
        if master is not None:
            found[name] = master
    return found


async def keep_asking(config: BrokerConfig, parts: Parts) -> None:
    """Run a round every check interval, while this broker is an active master."""
    book, decisions = parts.transactions.book, parts.batches.decisions
    homes = SinkHomes(config, parts.client, parts.clock, book, decisions, parts.registration.complaints)
    while True:
        await asyncio.sleep(config.transactions.check_interval_s)
        if parts.activity.is_on:
            await homes.ask_all()
            await homes.see_through()
