"""Asking the homes of sinks what became of halves that wait here without a verdict.

A batch that is decided is ended in every group by anyone who decided it.  When he dies before his END came here, and
his query never comes back, this group has halves that it knows nothing about, while the batch is decided at its sink's
home: some of its rows would be seen in one group and never in another.  So the group asks, as it would ask a
transactional producer back: now and then, for each sink with something that has waited for a while.  What the home
answers is confirmed by all its copies; it is learned like what an END carries, and the next pass of the checks ends the
halves.  A home that has decided nothing, or that is away, is asked again in the next round; nothing is ever guessed.

A sink without a `sinkId` writes one batch.  When its driver dies between DECIDE and "done", no driver continues it.
After an hour its home sends END to every group instead, and then counts the batch as done.

Bounded: one question at a time, so many sinks a round, and the next round goes on behind them.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from typing import TYPE_CHECKING

from gantry.broker.registration import Asking
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
    """One broker's; run() is a task of it."""

    def __init__(
        self,
        config: BrokerConfig,
        client: Asking,
        clock: Clock,
        book: Book,
        decisions: Decisions,
        complaints: Complaints,
    ) -> None:
        self._group = config.name
        self._name_servers = config.name_servers
        # A batch that is being written is not worth a question.
        self._patience_ms = int(config.transactions.check_interval_s * 1000)
        self._client = client
        self._clock = clock
        self._book = book
        self._decisions = decisions
        self._complaints = complaints
        self._last: Place = ("", "")  # whom the last round asked about last
        self._last_ended = ""  # the sink that the last round saw through last

    def waiting(self) -> list[Place]:
        """Sinks whose homes are to be asked in the next round."""
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
        """One round."""
        places = self.waiting()
        if not places:
            return
        try:
            masters = await self._masters()
        except GantryError as error:
            self._complaints.say("homes", f"no name server tells where the homes of sinks are: {error}")
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
            self._complaints.say(f"home {home}", f"group {home}, the home of sink {sink}, does not say: {error}")
            if isinstance(error, UnreachableError | OutcomeUnknownError):
                del masters[home]  # not waited for once more in this round

    def _learn(self, sink: str, home: str, said: dict[str, object]) -> None:
        """What the home has decided; an aborted part alone is no decision, and waits for one."""
        number = documents.integer(said, "batch", -1)
        if number < 0:
            return
        parts = None if documents.boolean(said, "done") else [str(part) for part in documents.array(said, "parts")]
        refused = self._decisions.learn(Batch(sink, number, home), parts, self._clock.now_ms())
        if refused is not None:
            self._complaints.say(f"sink {sink}", f"what group {home} says of sink {sink} is refused: {refused.remark}")
        self._decisions.file.save_if_changed()

    def abandoned(self) -> list[str]:
        """Sinks of which this home sees a batch through in the next round."""
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
        """One round; a batch that has not ended everywhere is looked at again in a later one."""
        names = self.abandoned()
        if not names or not self._decisions.is_confirmed:
            return
        try:
            masters = await self._masters()
        except GantryError as error:
            self._complaints.say("homes", f"no name server tells where batches of sinks have to end: {error}")
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
        """Have a group end what it has of a batch, some of it, and say whether nothing is left."""
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
            self._complaints.say(f"end {group}", f"group {group} does not end {what}: {error}")
            del masters[group]  # not waited for once more in this round
            return False

    async def _masters(self) -> dict[str, str]:
        """Group -> address of its master."""
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
    """Round after round, while this broker works as a master."""
    book, decisions = parts.transactions.book, parts.batches.decisions
    homes = SinkHomes(config, parts.client, parts.clock, book, decisions, parts.registration.complaints)
    while True:
        await asyncio.sleep(config.transactions.check_interval_s)
        if parts.activity.is_on:
            await homes.ask_all()
            await homes.see_through()
