"""What the broker does by the clock: the table of its jobs.

Periods are short where somebody waits (a held pull's time, a late acknowledgement), RocketMQ's where clients
can tell the difference, and long where only tools look.  What a job does stands with its domain; here is only
when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gantry.append.batch import GATE_DISK_FULL
from gantry.broker.jobs import Job
from gantry.broker.meters.looplag import PERIOD_S
from gantry.broker.meters.rates import SAMPLE_S
from gantry.broker.role.membership import KEY_LOOK_S
from gantry.consume.grouprates import SAMPLE_S as GROUP_SAMPLE_S
from gantry.consume.statistics import SAMPLE_S as STATISTICS_SAMPLE_S

if TYPE_CHECKING:
    from gantry.broker.parts import Parts
    from gantry.broker.role.membership import KeyFile
    from gantry.metadata.notices import ChangeNotices

DELIVERY = "delivery"

_STORE_TICK_S = 0.05  # flush policy, queue tails, checkpoint: it looks at the clock by itself
_ACKS_S = 0.25  # of seconds that are waited for
_HELD_S = 0.25
_NOTICES_S = 0.1
_SAVE_S = 1.0  # change rarely and matter; a slave acknowledges nothing before what it was told is saved
_LOCKS_S = 1.0
_EXPIRY_S = 10.0  # RocketMQ's ClientHousekeepingService
_TRANSACTIONS_S = 1.0
_DUE_S = 0.01  # what is due is at most this late; while nothing is, the job rests
_DELAYS_S = 1.0
_REPLICATION_S = 0.1
_IDLE_S = 1.0
_STALLED_S = 0.25  # a part of the shortest time that a disk may take
_DISK_S = 1.0  # after a full disk one attempt a second finds out whether there is room again


def table(parts: Parts, notices: ChangeNotices, key_file: KeyFile | None) -> list[Job]:
    """The jobs of a broker with these parts, and of a member of a group; each is essential."""
    clock, config = parts.clock, parts.live.current

    def save() -> None:
        parts.topics.file.save_if_changed()
        parts.groups.file.save_if_changed()
        parts.locks.file.save_if_changed()
        parts.filters.save_if_changed()
        parts.batches.decisions.file.save_if_changed()
        parts.delays.retry()

    return [
        Job("store", _STORE_TICK_S, lambda: parts.store.tick(clock.now_ms())),
        Job("late acks", _ACKS_S, parts.acks.expire),
        Job("held pulls", _HELD_S, lambda: parts.pulls.held.sweep(clock.monotonic())),
        Job("notices", _NOTICES_S, lambda: notices.flush(clock.monotonic())),
        Job("save tables", _SAVE_S, save),
        Job("save offsets", config.clients.offsets_save_s, parts.offsets.saving),
        Job("check back", config.transactions.check_interval_s, _if_active(parts, parts.transactions.run_pass)),
        Job("transactions", _TRANSACTIONS_S, _if_active(parts, parts.transactions.tick)),
        Job("decisions of sinks", _TRANSACTIONS_S, _if_active(parts, parts.batches.tick)),
        Job(DELIVERY, _DUE_S, _if_active(parts, parts.delays.deliver), lambda: _delivery_rest_s(parts)),
        Job("delays", _DELAYS_S, _if_active(parts, parts.delays.tick)),
        *([Job("replication", _REPLICATION_S, parts.group.tick)] if parts.group is not None else []),
        *([Job("replication secret", KEY_LOOK_S, key_file.look)] if key_file is not None else []),
        Job("silent clients", _EXPIRY_S, lambda: parts.clients.expire(clock.monotonic())),
        Job("queue locks", _LOCKS_S, _if_active(parts, lambda: parts.locks.expire(clock.monotonic()))),
        Job("full disk", _DISK_S, lambda: parts.gate.reopen(GATE_DISK_FULL)),
        Job("stalled disk", _STALLED_S, parts.stalled.look),
        Job("rates", SAMPLE_S, parts.rates.sample),
        Job("statistics", STATISTICS_SAMPLE_S, parts.statistics.sampling),
        Job("rates of groups", GROUP_SAMPLE_S, parts.pulls.rates.sample),
        Job("loop lag", PERIOD_S, parts.loop_lag.sample),
    ]


def _if_active(parts: Parts, run: Callable[[], Iterator[object] | None]) -> Callable[[], Iterator[object] | None]:
    """What only a working master does."""
    return lambda: run() if parts.activity.is_on else None


def _delivery_rest_s(parts: Parts) -> float:
    """How long nothing is due; anyone who is no working master looks again in a second."""
    return parts.delays.rest_s() if parts.activity.is_on else _IDLE_S
