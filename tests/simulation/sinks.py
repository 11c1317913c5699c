"""A sink as Spark runs one: batch after batch, and anyone who writes or decides may die at any step.

A try writes a part, whose halves have to be acknowledged, and asks the home to decide for it.  A try that fails, or
whose driver dies before or after the decision, is followed by another one with a part of its own.  The next batch
begins when this one was decided, ended until nothing is left, and called done.  What must hold, besides what the
ledger knows of halves: a batch is decided once, and each time that somebody asks the same parts have won.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from gantry.client.requests.question import Question
from gantry.client.requests.questions import is_in_doubt
from gantry.client.requests.sink_requests import ABORT, COMMIT, DONE, PASSING, SinkBatch, SinkDecision, decided, ended
from gantry.errors import RefusedError
from gantry.transaction.batches import PROPERTY
from gantry.wire.codes import ResponseCode
from simulation.clients import Producer
from simulation.ledger import Attempt
from testkit.brokerplay import send

T = TypeVar("T")

SINK, HOME = "revenue", "broker-a"
_GROUP, _OWNER = "spark", "query-1"
_ROWS = (1, 2, 5)
_DIES = 0.15  # at each step
_REFUSED_MAX = 20
_ENDS_MAX = 200
_SILENT_MAX = 100  # a restart takes less


class Sink(Producer):
    """One query's: writers and driver."""

    done = 0  # batches
    _batch = 1
    _part = 0
    _winners: tuple[str, ...] | None = None  # of the batch, once somebody was told

    async def main(self) -> None:
        """Until stopped, and then until the batch that was begun is done."""
        self._tries: dict[str, list[Attempt]] = {}
        while not self.is_stopped or self._tries:
            await self._try(SinkBatch(SINK, self._batch, HOME, owner=_OWNER))
            await asyncio.sleep(self.chance.expovariate(1 / self.pause_s))

    @property
    def is_idle(self) -> bool:
        """Whether no batch is begun."""
        return not self._tries

    async def _try(self, one: SinkBatch) -> None:
        self._part += 1
        part = f"0-{self._part}"
        if not await self._write(one, part):
            if self.chance.random() < 0.5:
                await self._give_up(one, part)
            return
        if self._dies():
            return
        decision = await self._told(decided(one, COMMIT, [part], [HOME]))
        if decision is None and not self._dies():
            decision = await self._told(decided(one, COMMIT, [part], [HOME]))
        if decision is None or not self._heard(one, decision) or self._dies():
            return
        if await self._end(one, decision) and await self._told(decided(one, DONE)) is not None:
            self.done += 1
            self._batch += 1
            self._tries, self._winners = {}, None

    def _dies(self) -> bool:
        """A driver does, and the next one writes the batch again."""
        return self.chance.random() < _DIES

    async def _write(self, one: SinkBatch, part: str) -> bool:
        self._tries[part] = []
        for _ in range(self.chance.choice(_ROWS)):
            made = self.attempt()
            made.is_half = True
            made.is_committed = None if self._winners is None else False
            self._tries[part].append(made)
            pairs = {
                "UNIQ_KEY": made.body.decode()[:30],
                "TRAN_MSG": "true",
                "PGROUP": _GROUP,
                PROPERTY: f"{one.sink}/{one.batch}/{part}/{one.home}",
            }
            if not await self._store(made, pairs):
                return False
            self.acknowledged(made)
        return True

    async def _store(self, made: Attempt, pairs: dict[str, str]) -> bool:
        """As the sink's sender does: what was refused is sent again under its part, what is in doubt never."""
        for _ in range(_REFUSED_MAX):
            answer = await self.ask(send(made.topic, made.body, made.queue_id, pairs, a=_GROUP, f="4"))
            if answer is None or answer.code == ResponseCode.SUCCESS:
                return answer is not None
            self._route.missed()
            if is_in_doubt(answer) or answer.code not in PASSING:
                return False
            await asyncio.sleep(0.05)
        return False

    async def _give_up(self, one: SinkBatch, part: str) -> None:
        """What Spark asks for when a task fails for good: this part is never committed."""
        decision = await self._told(decided(one, ABORT, [part]))
        if decision is not None and decision.batch < one.batch:
            await self._told(ended(one, None, [part]))

    async def _end(self, one: SinkBatch, decision: SinkDecision) -> bool:
        """As the client does: without an answer it asks again; a driver may live on over a broker's restart."""
        question = ended(one, None, is_done=True) if decision.is_done else ended(one, decision.parts)
        silent = 0
        for _ in range(_ENDS_MAX):
            answer = await self._told(question)
            silent += answer is None
            if silent > _SILENT_MAX or self._dies():
                return False
            if answer is not None and not answer.left:
                return True
            await asyncio.sleep(0.05)
        self._ledger.broken.append(f"batch {one.batch} of {one.sink} has halves that nobody can end")
        return False

    def _heard(self, one: SinkBatch, decision: SinkDecision) -> bool:
        """Whether it is about this batch, and says what was said before."""
        if decision.batch != one.batch:
            self._ledger.broken.append(f"batch {one.batch} of {one.sink}: the newest decision is of {decision.batch}")
            return False
        if decision.is_done:  # our word of that was not answered, and a done batch keeps no parts
            if self._winners is None:
                self._ledger.broken.append(f"batch {one.batch} of {one.sink} is done, and nobody was told its parts")
            return self._winners is not None
        if self._winners not in (None, decision.parts):
            both = f"{self._winners}, then {decision.parts}"
            self._ledger.broken.append(f"batch {one.batch} of {one.sink} was decided twice: {both}")
            return False
        self._winners = decision.parts
        for part, attempts in self._tries.items():
            for made in attempts:
                made.is_committed = part in decision.parts
        return True

    async def _told(self, question: Question[T]) -> T | None:
        """The answer; None when none came, or nobody may give one now."""
        answer = await self.ask(question.command)
        if answer is None:
            return None
        try:
            return question.read(answer)
        except RefusedError as refused:
            if refused.code not in PASSING:
                self._ledger.broken.append(f"batch {self._batch} of {SINK}: {refused}")
            self._route.missed()
            return None
