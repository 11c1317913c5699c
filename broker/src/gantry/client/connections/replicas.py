"""Which member of a broker group receives a request about a queue: the master, or one of its slaves.

    the master suggests a slave       the next pull of that queue goes there (RocketMQ: suggestWhichBrokerId)
    the slave suggests the master,
    fails, or refuses                 back to the master
    the master does not answer        pulls and commits of offsets go to a slave at once
    it answers again                  everything goes to the master again

A master that does not answer is tried about once a second by a separate request, because a pull may be held for long.
The first request on a new connection is a heartbeat, which registers this member at the master again; the other members
of its group depend on that (see `rebalance`).  A slave that failed is asked last for a few seconds.  Requests that only
a master serves (locks, sending back, administration) are never sent to a slave.

A pull from a slave does not carry the group's progress: it goes to the master by commits, and to a slave only while the
master does not answer.  `tell` returns which of them received it, because RocketMQ's slave does not pass it on.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from gantry.client.connections.routes import Routes
from gantry.client.connections.session import Session
from gantry.client.requests import questions
from gantry.client.requests.question import Question
from gantry.client.requests.questions import PullSettings
from gantry.client.results import PullResult
from gantry.errors import GantryError, OutcomeUnknownError, RefusedError, RemoteProtocolError, UnreachableError
from gantry.model.route import MASTER_ID, MessageQueue

T = TypeVar("T")
log = logging.getLogger(__name__)

_TRIED_MAX = 2  # members that one request is sent to
_LOOK_S = 1.0
_LOOK_TIMEOUT_S = 3.0
_SHUN_S = 5.0
_MARGIN_S = 3.0  # time for the answer beyond the holding time of a pull, when there is another member to ask
_SLAVE_WAIT_S = 2.0  # a slave that replaces the master holds a pull only so long: the master may be back


class Replicas:
    """One client's knowledge of the members of all groups."""

    def __init__(self, session: Session, routes: Routes) -> None:
        self._session = session
        self._routes = routes
        self._suggested: dict[MessageQueue, int] = {}  # id of the suggested slave
        self._away: dict[str, MessageQueue] = {}  # groups whose master does not answer, with a queue of theirs
        self._shunned: dict[str, float] = {}  # addresses of slaves that are asked last until this loop time
        self._looking: asyncio.Task[None] | None = None
        self._random = random.Random()  # jitter: many clients test the same master

    async def ask(self, queue: MessageQueue, question: Question[T], timeout_s: float) -> T:
        """Return the answer of the master, or of a slave while the master does not answer."""
        answer, _ = await self._ask(queue, MASTER_ID, lambda _: question, timeout_s)
        return answer

    async def tell(self, queue: MessageQueue, question: Question[None], timeout_s: float) -> bool:
        """Send a request without a result, like `ask`. Return whether the master received it."""
        _, broker_id = await self._ask(queue, MASTER_ID, lambda _: question, timeout_s)
        return broker_id == MASTER_ID

    async def pull(
        self, queue: MessageQueue, offset: int, settings: PullSettings, progress: int | None, margin_s: float
    ) -> tuple[PullResult, bool]:
        """Pull from the suggested member. Return the result, and whether the member took the progress.

        margin_s: time for the answer beyond the time that the pull may be held.
        """

        def make(broker_id: int) -> Question[PullResult]:
            if broker_id == MASTER_ID:
                return questions.pull(queue, offset, settings, progress)
            return questions.pull(queue, offset, replace(settings, wait_s=min(settings.wait_s, _SLAVE_WAIT_S)))

        wanted = self._suggested.get(queue, MASTER_ID)
        if len(self._routes.members(queue)) > 1:
            margin_s = min(margin_s, _MARGIN_S)
        result, broker_id = await self._ask(queue, wanted, make, settings.wait_s + margin_s)
        if result.suggested == MASTER_ID:
            self._suggested.pop(queue, None)
        else:
            self._suggested[queue] = result.suggested
        return result, broker_id == MASTER_ID

    def forget(self, queue: MessageQueue) -> None:
        """Forget the suggestion for a queue that another member of the consumer group has now."""
        self._suggested.pop(queue, None)

    async def _ask(
        self, queue: MessageQueue, wanted: int, make: Callable[[int], Question[T]], timeout_s: float
    ) -> tuple[T, int]:
        """Return the answer and the id of the member that gave it; the first error when no member answers."""
        failure: GantryError | None = None
        for broker_id, address in self._order(queue, wanted)[:_TRIED_MAX]:
            try:
                answer = await self._session.ask(address, make(broker_id), timeout_s)
            except (RefusedError, RemoteProtocolError) as error:
                if broker_id == MASTER_ID:
                    self._is_back(queue.broker_name)
                    raise
                failure = failure or error
            except (UnreachableError, OutcomeUnknownError) as error:
                failure = failure or error
            else:
                if broker_id == MASTER_ID:
                    self._is_back(queue.broker_name)
                return answer, broker_id
            self._failed(queue, broker_id, address)
        if failure is not None:
            raise failure
        raise UnreachableError(f"{queue.broker_name}: no broker known for topic {queue.topic}")

    def _order(self, queue: MessageQueue, wanted: int) -> list[tuple[int, str]]:
        """Return the members to ask, in order."""
        members = self._routes.members(queue)
        now = asyncio.get_running_loop().time()
        shunned = [(one, address) for one, address in sorted(members.items()) if self._shunned.get(address, now) > now]
        masters = [(MASTER_ID, members.pop(MASTER_ID))] if MASTER_ID in members else []
        slaves = [one for one in sorted(members.items()) if one not in shunned]
        if not masters and members:
            self._miss(queue)
        if queue.broker_name in self._away and slaves:
            masters = []
        suggested = [one for one in slaves if one[0] == wanted]
        if wanted != MASTER_ID and wanted not in members:
            self._routes.doubt(queue.topic)
        others = [one for one in slaves if one[0] != wanted]
        return [*suggested, *masters, *others, *shunned]

    def _failed(self, queue: MessageQueue, broker_id: int, address: str) -> None:
        self._routes.doubt(queue.topic)
        self._suggested.pop(queue, None)
        if broker_id != MASTER_ID:
            now = asyncio.get_running_loop().time()
            self._shunned = {one: until for one, until in self._shunned.items() if until > now}
            self._shunned[address] = now + _SHUN_S
        elif len(self._routes.members(queue)) > 1:
            self._miss(queue)

    def _miss(self, queue: MessageQueue) -> None:
        """Note that the master does not answer, and start to test it; slaves serve meanwhile."""
        if queue.broker_name not in self._away:
            log.warning("%s: the master does not answer, reading continues from a slave", queue.broker_name)
            self._away[queue.broker_name] = queue
        if self._looking is None or self._looking.done():
            self._looking = self._session.tasks.own(asyncio.create_task(self._look(), name="gantry-masters"))

    def _is_back(self, broker_name: str) -> None:
        if self._away.pop(broker_name, None) is not None:
            log.info("%s: the master answers again", broker_name)

    async def _look(self) -> None:
        while self._away:
            await asyncio.sleep(_LOOK_S * self._random.uniform(0.5, 1.0))
            missed = list(self._away.items())
            answers = await asyncio.gather(*(self._answers(queue) for _, queue in missed))
            for (name, _), is_back in zip(missed, answers, strict=True):
                if is_back:
                    self._is_back(name)

    async def _answers(self, queue: MessageQueue) -> bool:
        self._routes.doubt(queue.topic)
        try:
            await self._routes.to_read(queue.topic)
            await self._session.ask(self._routes.master(queue), questions.max_offset(queue), _LOOK_TIMEOUT_S)
        except RefusedError:
            return True  # it answers, or the topic was deleted
        except (UnreachableError, OutcomeUnknownError, RemoteProtocolError):
            return False
        return True
