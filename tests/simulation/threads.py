"""The background of a simulated process: what real threads do, at moments that the world draws.

A sync takes effect when it begins and is told of when it ends, so what is written in between is not durable although
the next thing that the loop hears is good news.  Other jobs take effect when they end.  Each of the three does one
thing at a time, in order, as a thread does.  With the process dies what waits; a sync that had begun has happened.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from gantry.errors import StoreError
from gantry.store.background import Done, FlushDone, Flusher, Job, Worker
from gantry.store.disk import Disk, File
from simulation.simloop import SimLoop
from simulation.world import World

_JOBS_MAX = 1024
_JOB_S = (0.0001, 0.004)


class _Pace:
    """How long things take on this disk."""

    def __init__(self, world: World, loop: SimLoop) -> None:
        self.slowness = 1.0
        self.later_s = 0.0  # what each sync of the log takes besides
        self.jobs_later_s = 0.0  # and each other job
        self.loop = loop
        self._world = world
        self._is_hung = False
        self._hung: list[Callable[[], None]] = []  # jobs that began meanwhile

    def hang(self) -> None:
        """No job that begins from now on ends."""
        self._is_hung = True

    def go_on(self) -> None:
        """They do again, those that began meanwhile too."""
        self._is_hung, hung, self._hung = False, self._hung, []
        for then in hung:
            self.after_a_job(then)

    def after_a_job(self, then: Callable[[], None], is_sync: bool = False) -> None:
        """Call when a job that begins now has ended, unless the process is dead by then."""
        if self._is_hung:
            self._hung.append(then)
            return
        seconds = self._world.chance.uniform(*_JOB_S) * self.slowness + (self.later_s if is_sync else self.jobs_later_s)
        self._world.after(seconds, lambda: None if self.loop.is_dead else then())


class _Thread:
    """One worker."""

    def __init__(self, pace: _Pace) -> None:
        self._pace = pace
        self._waiting: deque[tuple[Job, Done | None]] = deque()
        self._finished: deque[tuple[Done, StoreError | None]] = deque()  # the loop has not come to hear of them
        self._is_busy = False
        self.ended = 0

    @property
    def is_busy(self) -> bool:
        """Whether a job is under way, or waits."""
        return self._is_busy or bool(self._waiting)

    def submit(self, job: Job, done: Done | None = None, first: bool = False) -> bool:
        if len(self._waiting) >= _JOBS_MAX:
            return False
        if first:
            self._waiting.appendleft((job, done))
        else:
            self._waiting.append((job, done))
        if not self._is_busy:
            self._begin()
        return True

    def drain(self) -> None:
        """What waits happens now, while the loop stands still, and all of it is told."""
        self._deliver()
        while self._waiting:
            self._end()

    def _begin(self) -> None:
        self._is_busy = True
        self._pace.after_a_job(self._ended)

    def _ended(self) -> None:
        self._is_busy = False
        if self._waiting:
            job, done = self._waiting.popleft()
            error = _attempt(job)
            self.ended += 1
            if done is not None:
                self._finished.append((done, error))
                self._pace.loop.call_soon(self._deliver)
        if self._waiting:
            self._begin()

    def _deliver(self) -> None:
        while self._finished:
            done, error = self._finished.popleft()
            done(error)

    def abandon(self) -> None:
        """Forget what has not been told."""
        self._waiting.clear()
        self._finished.clear()

    def _end(self) -> None:
        job, done = self._waiting.popleft()
        error = _attempt(job)
        if done is not None:
            done(error)


class _Flusher:
    """The thread of the log's syncs: newer requests replace those that have not begun."""

    def __init__(self, pace: _Pace) -> None:
        self._pace = pace
        self._waiting: tuple[Sequence[File], int, FlushDone] | None = None
        self._under_way: tuple[int, FlushDone, StoreError | None] | None = None
        self._finished: deque[tuple[int, FlushDone, StoreError | None]] = deque()

    def request(self, files: Sequence[File], target: int, done: FlushDone) -> None:
        self._waiting = (files, target, done)
        if self._under_way is None:
            self._begin()

    def drain(self) -> None:
        """All of it now, told now."""
        self._deliver()
        while self._under_way is not None or self._waiting is not None:
            if self._under_way is None:
                self._sync()
            under_way, self._under_way = self._under_way, None
            assert under_way is not None
            under_way[1](under_way[0], under_way[2])

    def _begin(self) -> None:
        self._sync()
        begun = self._under_way
        self._pace.after_a_job(lambda: self._ended(begun), is_sync=True)

    def _sync(self) -> None:
        assert self._waiting is not None
        (files, target, done), self._waiting = self._waiting, None
        error = _attempt(partial(_sync_all, files))
        self._under_way = (target, done, error)

    def _ended(self, begun: tuple[int, FlushDone, StoreError | None] | None) -> None:
        if begun is None or self._under_way is not begun:
            return  # drained meanwhile
        self._under_way = None
        self._finished.append(begun)
        self._pace.loop.call_soon(self._deliver)
        if self._waiting is not None:
            self._begin()

    def _deliver(self) -> None:
        while self._finished:
            target, done, error = self._finished.popleft()
            done(target, error)


class SimBackground:
    """The three; see the module."""

    def __init__(self, world: World, loop: SimLoop) -> None:
        self.pace = _Pace(world, loop)
        self.flusher: Flusher = _Flusher(self.pace)
        self.housekeeper: Worker = _Thread(self.pace)
        self._cold_reader = _Thread(self.pace)
        self.cold_reader: Worker = self._cold_reader

    def __call__(self, disk: Disk) -> SimBackground:
        """As `Machine.background` wants it."""
        del disk
        return self

    def close(self) -> None:
        """Finish what was submitted, but for cold reads."""
        self.flusher.drain()
        self.housekeeper.drain()
        self._cold_reader.abandon()


def _sync_all(files: Sequence[File]) -> None:
    for file in files:
        file.sync_data()


def _attempt(job: Job) -> StoreError | None:
    try:
        job()
    except StoreError as error:
        return error
    return None
