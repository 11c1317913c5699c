"""A world in which nothing happens but what a seed says: virtual time, processes with loops of their own, chance.

    world = World(seed)
    world.after(3.0, cut_the_power)      # an event of the world: a fault, bytes that arrive, a sync that ends
    world.run(until_s=60.0)

One thread runs everything.  The world goes from one moment at which something is due to the next; whose turn it is
among those who are due at the same moment is drawn.  A turn of a process's loop costs it some microseconds, so that
time always goes on and work in slices ends.  Nothing reads the machine's clock, opens a socket or starts a thread, and
chance comes from one generator: a seed gives the same run again, as long as PYTHONHASHSEED is set too, which
`simulation.run` sees to.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulation.simloop import SimLoop

# What a turn of a loop costs its process, at least and at most.
_TURN_S = (0.000005, 0.0001)
_TURNS_MAX = 20_000_000
NEVER = float("inf")


class Broken(AssertionError):  # noqa: N818  the name says what the run found
    """A promise was broken, or the run itself was: the seed is red."""


class World:
    """Time, chance, and who is alive."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0  # seconds since the world began
        self.chance = random.Random(seed)
        self.trace: list[str] = []
        self.problems: list[str] = []
        self._loops: list[SimLoop] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = 0

    def say(self, line: str) -> None:
        """One line of the story, with its time."""
        self.trace.append(f"{self.now:10.4f}  {line}")

    def problem(self, what: str) -> None:
        """Something went wrong that no promise speaks of: an exception that nobody took."""
        self.say(f"PROBLEM {what}")
        self.problems.append(what)

    def at(self, when: float, event: Callable[[], None]) -> None:
        """Let this happen at a moment."""
        self._numbers += 1
        heapq.heappush(self._events, (max(when, self.now), self._numbers, event))

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        """Let this happen in a while."""
        self.at(self.now + seconds, event)

    def join(self, loop: SimLoop) -> None:
        """A process begins."""
        self._loops.append(loop)

    def leave(self, loop: SimLoop) -> None:
        """A process is dead: its loop never turns again."""
        self._loops.remove(loop)

    def end(self) -> None:
        """All processes are dead: what Python says of their tasks when it lets go of them is no part of the story."""
        for loop in list(self._loops):
            loop.die()

    def run(self, until_s: float, is_over: Callable[[], bool] = lambda: False) -> bool:
        """Go on until that time or until `is_over`; whether it was over."""
        loops, events = self._loops, self._events
        for _ in range(_TURNS_MAX):
            if is_over():
                return True
            # One look at all loops for both questions: when something is due, and whose turn it is then.
            now, due, ready = self.now, NEVER, []
            for loop in loops:
                moment = loop.moment
                if moment <= now:
                    ready.append(loop)
                if moment < due:
                    due = moment
            if events and events[0][0] < due:
                due = events[0][0]
            if due > until_s:
                self.now = max(now, until_s)
                return is_over()
            if due > now:
                self.now = now = due
                ready = [loop for loop in loops if loop.moment <= now]
            if events and events[0][0] <= now:
                heapq.heappop(events)[2]()
                continue
            (ready[0] if len(ready) == 1 else self.chance.choice(ready)).turn()
            self.now += self.chance.uniform(*_TURN_S)
        raise Broken(f"{_TURNS_MAX} turns before {until_s} s: somebody goes round in circles")
