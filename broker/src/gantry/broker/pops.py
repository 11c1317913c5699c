"""Makes the parts of POP consumption of a broker from its other parts and its configuration.

Only an active master that may serve answers pops: the router refuses the requests of all others, and a pop that waited
asks again before it is answered.
"""

from __future__ import annotations

from collections.abc import Callable

from gantry.broker.group.roles import Shared
from gantry.broker.machine import Machine
from gantry.broker.part_settings import assignment_rules, held_limits, pop_rules
from gantry.broker.settings.config import BrokerConfig
from gantry.broker.settings.live import LiveConfig
from gantry.broker.topicroutes import TopicRoutes
from gantry.consume.pull import PullChecks
from gantry.metadata.clients import Clients
from gantry.metadata.state import State
from gantry.pop import parts
from gantry.pop.assignment_handlers import AssignmentHandlers
from gantry.pop.service import PopContext

Hooks = tuple[Callable[[str, str], object], Callable[[], bool], Callable[[Callable[[], None]], object]]
"""Says a complaint; whether this broker may serve; calls a function at the end of this turn."""


def make_pops(
    config: BrokerConfig, shared: Shared, order_state: State, checks: PullChecks, machine: Machine, hooks: Hooks
) -> parts.PopParts:
    """Return the parts; of them only the table of orderly pops listens yet, whose file is order_state."""
    say, may_serve, soon = hooks
    context = PopContext(
        shared.store,
        shared.topics,
        shared.groups,
        shared.offsets,
        shared.acks,
        shared.gate,
        machine.steady,
        pop_rules(config),
        say,
        shared.progress.starts,
        shared.progress.firsts,
        lambda: may_serve() and shared.activity.is_on,
    )
    return parts.make(context, order_state, checks, machine.chance, soon, held_limits(config), shared.delays.waiting)


def assignments(live: LiveConfig, shared: Shared, routes: TopicRoutes, clients: Clients) -> AssignmentHandlers:
    """Return what answers which queues a member of a group reads."""
    return AssignmentHandlers(
        shared.modes, routes, shared.topics, shared.groups, clients, lambda: assignment_rules(live.current)
    )
