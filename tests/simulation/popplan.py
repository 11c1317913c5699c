"""A run of a group whose messages are popped besides; see `poppers` for what has to hold."""

from __future__ import annotations

from dataclasses import replace

from simulation.clients import Consumer, Producer
from simulation.groupplan import PLACES, GroupRun
from simulation.groupworld import Shape
from simulation.poppers import PopLedger, Popper
from simulation.world import Broken

_POPPERS = 3
_DONE_S = 120.0
_AGAIN_S = 10.0  # leases that a popper did not use end by then


class PopRun(GroupRun):
    """One seed; what was acknowledged is never lost in such a group."""

    def __init__(self, seed: int) -> None:
        self._popped = PopLedger()
        self._poppers: list[Popper] = []
        super().__init__(seed)

    def _shape(self, shape: Shape) -> Shape:
        return replace(shape, is_sync_master=True, is_sync_flush=True)

    def _clients(self) -> tuple[list[Producer], list[Consumer]]:
        topics = sorted({topic for topic, _ in PLACES})
        self._poppers = [
            Popper(self.world, self.group.network, f"10.0.4.{number}", self._route(), self._popped, topics)
            for number in range(_POPPERS)
        ]
        for popper in self._poppers:
            popper.run(popper.main)
        return super()._clients()

    def _finished(self, producers: list[Producer]) -> None:
        """Everything is acknowledged by a popper, and nothing comes again."""
        del producers
        for popper in self._poppers:
            popper.is_diligent = True
        attempts = self._ledger.attempts.values()
        world = self.world
        until = world.now + _DONE_S
        while world.now < until and self._popped.owed(list(attempts)):
            self._run(1.0)
        if owed := self._popped.owed(list(attempts)):
            first = owed[0]
            where = f"{first.topic}/{first.queue_id} at {first.offset}, sent at {first.sent_at:.3f}"
            raise Broken(f"{len(owed)} messages were never popped and acknowledged; {first.body[:20]!r} of {where}")
        self._run(_AGAIN_S)
        told = self._popped
        world.say(f"{told.pops} handles, {told.again} of them of messages that came before, {len(told.done)} done")

    def _check(self) -> None:
        super()._check()
        if self._popped.broken:
            raise Broken(self._popped.broken[0])
