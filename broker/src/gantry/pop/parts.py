"""The parts of POP consumption, made and connected.

Inside, every part gets what it calls as a constructor argument.  Other parts of a broker are connected in
`broker/assemble.py`; the seams for them are

    pops.hold           keeps a pop that found nothing; `pops.try_again` is called when messages come
    pops.orderly        answers orderly pops, and `acks.orderly` requests with their handles
    reviver.renews      says until when a lease goes on whose owner is alive
    reviver.on_copies   told of the topic of new messages in a retry topic
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from gantry.consume.pull import PullChecks
from gantry.model.topic import TopicConfig
from gantry.pop import records, recovery
from gantry.pop.acknowledge import AckHandlers
from gantry.pop.pop import PopHandlers
from gantry.pop.revive import Reviver
from gantry.pop.service import PopContext, PopService

if TYPE_CHECKING:
    from gantry.schedule.places import DelayedEntry


@dataclass(frozen=True, slots=True)
class PopParts:
    """Everything of POP that other parts of a broker use."""

    service: PopService
    reviver: Reviver
    pops: PopHandlers
    acks: AckHandlers

    def recover(self, pending: list[DelayedEntry]) -> Iterator[None]:
        """Read the book back before the first request is served, in small slices; see `recovery`.  Empties the list."""
        following = yield from recovery.read_back(self.service, pending)
        pending.clear()
        context = self.service.context
        if self.service.rules.has_times:
            topic, queues = self.service.rules.revive_topic, records.REVIVE_QUEUES
            context.topics.ensure(TopicConfig(topic, read_queues=queues, write_queues=queues))
        self.service.begin()
        self.reviver.begin(following)


def make(
    context: PopContext, checks: PullChecks, chance: Random, soon: Callable[[Callable[[], None]], object]
) -> PopParts:
    """Make the parts and connect what happens inside; nothing listens yet."""
    service = PopService(context)
    reviver = Reviver(service)
    return PopParts(service, reviver, PopHandlers(service, checks, chance), AckHandlers(service, reviver, soon))
