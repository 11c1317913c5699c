"""The table of a broker's periodic jobs.

Periods are short where a client waits (the end of a held pull, a late acknowledgement), RocketMQ's where clients notice
them, and long for numbers that only tools read.  Each job's code is in the module of its domain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gantry.append.writing import GATE_DISK_FULL
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

DELIVERY, REVIVE = "delivery", "revive"

_STORE_TICK_S = 0.05  # flush policy, queue tails, checkpoint: each checks the clock itself
_ACKS_S = 0.25  # time-outs of acknowledgements are whole seconds
_HELD_S = 0.25
_NOTICES_S = 0.1
_SAVE_S = 1.0  # the tables change rarely; a slave acknowledges nothing before received changes are saved
_LOCKS_S = 1.0
_EXPIRY_S = 10.0  # RocketMQ's ClientHousekeepingService
_TRANSACTIONS_S = 1.0
_DUE_S = 0.01  # delivery is at most this late; while nothing is due, the job rests
_DELAYS_S = 1.0
_REVIVE_S = 0.05  # ended leases are delivered again at most this late; while none has ended, the job rests
_ORDERLY_S = 0.05  # waiting pops see at most this late that a message is visible again
_SAVE_ORDER_S = 5.0  # what a start reads again of the log
_TIDY_ORDER_S = 600.0
_REPLICATION_S = 0.1
_IDLE_S = 1.0
_STALLED_S = 0.25  # a part of the shortest configurable time-out of a disk
_DISK_S = 1.0  # after a full disk one attempt a second tests whether there is room again


def table(parts: Parts, notices: ChangeNotices, key_file: KeyFile | None) -> list[Job]:
    """Return the jobs of a broker with these parts; each is essential."""
    clock, config = parts.clock, parts.live.current

    def tick_store() -> Iterator[bool]:
        clock.look()
        return parts.store.tick(clock.wall_ms())

    def save() -> Iterator[None]:
        parts.topics.file.save_if_changed()
        parts.groups.file.save_if_changed()
        yield from parts.locks.saving()
        yield from parts.filters.saving()
        yield from parts.modes.saving()
        parts.batches.decisions.file.save_if_changed()
        parts.delays.retry()

    return [
        Job("store", _STORE_TICK_S, tick_store),
        Job("late acks", _ACKS_S, parts.acks.expire),
        Job("held pulls", _HELD_S, lambda: parts.pulls.held.sweep(clock.monotonic())),
        Job("held pops", _HELD_S, lambda: parts.pops.polling.held.sweep(clock.monotonic())),
        Job("notices", _NOTICES_S, lambda: notices.flush(clock.monotonic())),
        Job("save tables", _SAVE_S, save),
        Job("save offsets", config.clients.offsets_save_s, parts.offsets.saving),
        Job("check back", config.transactions.check_interval_s, _if_active(parts, parts.transactions.run_pass)),
        Job("transactions", _TRANSACTIONS_S, _if_active(parts, parts.transactions.tick)),
        Job("decisions of sinks", _TRANSACTIONS_S, _if_active(parts, parts.batches.tick)),
        Job(DELIVERY, _DUE_S, _if_active(parts, parts.delays.deliver), lambda: _delivery_rest_s(parts)),
        Job(REVIVE, _REVIVE_S, _if_active(parts, parts.pops.reviver.run), lambda: _revive_rest_s(parts)),
        Job("orderly pops", _ORDERLY_S, _if_active(parts, parts.pops.orderly.tick)),
        Job("save orderly pops", _SAVE_ORDER_S, parts.pops.orderly.table.saving),
        Job("idle orderly pops", _TIDY_ORDER_S, _if_active(parts, parts.pops.orderly.tidy)),
        Job("leases", _DELAYS_S, _if_active(parts, parts.pops.service.tick)),
        Job("queues", _DELAYS_S, _if_active(parts, parts.pops.keeper.tick)),
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
    """Return a job that runs only on an active master."""
    return lambda: run() if parts.activity.is_on else None


def _delivery_rest_s(parts: Parts) -> float:
    """Return for how many seconds nothing is due; a broker that is not active checks again after a second."""
    return parts.delays.rest_s() if parts.activity.is_on else _IDLE_S


def _revive_rest_s(parts: Parts) -> float:
    """Return for how many seconds no lease has to be handled; a broker that is not active checks after a second."""
    return parts.pops.reviver.rest_s() if parts.activity.is_on else _IDLE_S
