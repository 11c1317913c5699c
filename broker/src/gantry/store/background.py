"""Threads for calls that block: the event loop must not wait for the disk.

    flusher       fdatasync of the log, nothing else
    housekeeper   every other file call that blocks: allocate, unlink, fsync of queues, index, JSON files
    cold reader   brings ranges of the log into the page cache before they are sent

One thread each, started with the store and joined by close(); with compiled leaves the flusher is `syncthread`,
which needs no interpreter.  Cold reads that have not begun by then are left out, and nobody hears of the others: who
asked for them has ended, and would go on in a store that is closed.  Threads own no state.  A job is a closure over
what it needs; its outcome is handed to the loop through `post` (loop.call_soon_threadsafe), and state changes only
there.  Jobs do input and output.  Computing is done on the loop in slices, because a Python thread that computes takes
5 ms of the interpreter at a time.

Group commit: while one fdatasync runs, new requests replace each other, and the next fdatasync covers all that was
written meanwhile.

`InlineBackground` is the same without threads, for tests, simulations and commands: at once, or when stepped.
Deterministic: jobs run in the order of submission, outcomes are reported in the order of completion.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from gantry.errors import StoreError
from gantry.leaves import COMPILED
from gantry.store.disk import File, RealFile

if COMPILED:
    # The module is there only where the leaves are compiled; each pull far behind the end asks it.
    from gantry.store import syncthread

if TYPE_CHECKING:
    from gantry.store.syncthread import Poller, SyncThread

Job = Callable[[], None]
Done = Callable[[StoreError | None], None]
FlushDone = Callable[[int, StoreError | None], None]
Post = Callable[[Callable[[], None]], object]

# Every job has one submitter that waits for its outcome before the next, so a long queue means a stuck disk.
_JOBS_MAX = 1024
_COLD_CHUNK_BYTES = 256 * 1024


class Flusher(Protocol):
    """Makes bytes of the log durable; a newer request replaces one that has not begun."""

    def request(self, files: Sequence[File], target: int, done: FlushDone) -> None:
        """Sync these files, then call done(target, error) on the loop; replaces a request not begun yet."""
        ...

    def drain(self) -> None:
        """Block until nothing is under way and tell the outcomes now."""
        ...


class Worker(Protocol):
    """Runs jobs one after the other in the order of submission, off the loop."""

    ended: int  # how many jobs have ended

    @property
    def is_busy(self) -> bool:
        """Whether a job is under way, or waits."""
        ...

    def submit(self, job: Job, done: Done | None = None, first: bool = False) -> bool:
        """Queue a job (`first`: before those that wait); False when the queue is full.  done gets the StoreError."""
        ...

    def drain(self) -> None:
        """Block until all submitted jobs have run and tell their outcomes now."""
        ...


class Background(Protocol):
    """The flusher, the housekeeper and the cold reader of one store."""

    flusher: Flusher
    housekeeper: Worker
    cold_reader: Worker

    def close(self) -> None:
        """Finish what was submitted, but for cold reads, and end."""
        ...


def reading(file: File, ranges: Sequence[tuple[int, int]], ahead_bytes: int = 0) -> Job:
    """A job for the cold reader: touch these [start, end) of a file so that a later send does not fault.

    ahead_bytes: so much behind the last one will probably be read next.
    """
    if COMPILED and isinstance(file, RealFile):
        return partial(syncthread.read_through, file, ranges, ahead_bytes)

    def job() -> None:
        for start, end in ranges:
            for at in range(start, end, _COLD_CHUNK_BYTES):
                file.pread(min(_COLD_CHUNK_BYTES, end - at), at)

    return job


def in_memory(
    file: File, memory: memoryview, base: int, places: Iterable[tuple[int, int]], near_bytes: int
) -> bool:
    """Whether these (log offset, size) of a mapped file are in the page cache; False also when that is not known.

    Costs a system call for a stretch of places, no more than `near_bytes` apart; touches no page.
    """
    if COMPILED and isinstance(file, RealFile):
        return syncthread.in_memory(memory, base, places, near_bytes)
    return False


def _attempt(job: Job) -> StoreError | None:
    try:
        job()
    except StoreError as error:
        return error
    return None


def _sync_all(files: Sequence[File]) -> None:
    for file in files:
        file.sync_data()


class _Thread:
    """A worker thread: a bounded queue in, outcomes posted to the loop.

    A job that raises anything but StoreError is a bug: its thread ends with a traceback, and the next submit
    or drain says so.
    """

    def __init__(self, name: str, post: Post) -> None:
        self._name = name
        self._post = post
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Job, Done | None]] = deque()
        self._finished: deque[Callable[[], None]] = deque()
        self.ended = 0
        self._running = False
        self._closing = False
        self._dead = False
        self._thread = threading.Thread(target=self._run, name=f"gantry-{name}", daemon=True)
        self._thread.start()

    @property
    def is_busy(self) -> bool:
        return self._running or bool(self._waiting)

    def submit(self, job: Job, done: Done | None = None, first: bool = False) -> bool:
        with self._changed:
            self._refuse_if_dead()
            if len(self._waiting) >= _JOBS_MAX:
                return False
            if first:
                self._waiting.appendleft((job, done))
            else:
                self._waiting.append((job, done))
            self._changed.notify_all()
        return True

    def drain(self) -> None:
        with self._changed:
            while (self._waiting or self._running) and not self._dead:
                self._changed.wait()
            if self._waiting:
                self._refuse_if_dead()
        self._deliver()

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        self._deliver()

    def abandon(self) -> None:
        """End after the job that is under way; no outcome is told any more."""
        with self._changed:
            self._waiting.clear()
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        self._finished.clear()

    def _refuse_if_dead(self) -> None:
        if self._dead or self._closing:
            raise StoreError(f"the {self._name} thread has ended")

    def _run(self) -> None:
        try:
            while (taken := self._take()) is not None:
                job, done = taken
                error = _attempt(job)
                self._finish(None if done is None else partial(done, error))
        finally:
            with self._changed:
                self._dead = True
                self._running = False
                self._changed.notify_all()

    def _take(self) -> tuple[Job, Done | None] | None:
        with self._changed:
            while not self._waiting:
                if self._closing:
                    return None
                self._changed.wait()
            self._running = True
            return self._waiting.popleft()

    def _finish(self, outcome: Callable[[], None] | None) -> None:
        with self._changed:
            self._running = False
            self.ended += 1
            if outcome is not None:
                self._finished.append(outcome)
            self._changed.notify_all()
            closing = self._closing
        # A caller of close() delivers the outcomes itself; its loop may already be gone.
        if outcome is not None and not closing:
            self._post(self._deliver)

    def _deliver(self) -> None:
        while self._finished:
            self._finished.popleft()()


class _ThreadFlusher:
    """The newest request replaces the one that waits: group commit."""

    def __init__(self, thread: _Thread) -> None:
        self._thread = thread
        self._guard = threading.Lock()
        self._request: tuple[Sequence[File], int, FlushDone] | None = None

    def request(self, files: Sequence[File], target: int, done: FlushDone) -> None:
        # The job takes the request when it begins; one that comes later than that queues a job of its own.
        with self._guard:
            queued = self._request is not None
            self._request = (files, target, done)
        if not queued:
            outcome: list[tuple[int, FlushDone]] = []
            self._thread.submit(partial(self._sync, outcome), partial(self._tell, outcome))

    def _sync(self, outcome: list[tuple[int, FlushDone]]) -> None:
        with self._guard:
            request, self._request = self._request, None
        assert request is not None, "one job for each request that found none waiting"
        files, target, done = request
        outcome.append((target, done))
        _sync_all(files)

    @staticmethod
    def _tell(outcome: list[tuple[int, FlushDone]], error: StoreError | None) -> None:
        for target, done in outcome:
            done(target, error)

    def drain(self) -> None:
        self._thread.drain()


class ThreadBackground:
    """The three threads of a broker process."""

    def __init__(self, post: Post, poller: Poller | None = None) -> None:
        self._sync_thread = _sync_thread(poller)
        self._threads = [_Thread("housekeeper", post)]
        self._cold_reader = _Thread("cold-reader", post)
        self.housekeeper: Worker = self._threads[0]
        self.cold_reader: Worker = self._cold_reader
        if self._sync_thread is not None:
            self.flusher: Flusher = self._sync_thread
        else:
            self._threads.append(_Thread("flusher", post))
            self.flusher = _ThreadFlusher(self._threads[-1])

    def close(self) -> None:
        """Run what was submitted, but for cold reads, then join the threads."""
        if self._sync_thread is not None:
            self._sync_thread.close()
        self._cold_reader.abandon()
        for thread in self._threads:
            thread.close()


def _sync_thread(poller: Poller | None) -> SyncThread | None:
    """The compiled flusher, where there is a loop that can poll for it and the leaves are compiled."""
    if poller is None or not COMPILED:
        return None
    return syncthread.SyncThread(poller)


class _InlineWorker:
    """Runs jobs in the caller, at once or by step()."""

    def __init__(self, at_once: bool) -> None:
        self.ended = 0
        self._at_once = at_once
        self._waiting: deque[tuple[Job, Done | None]] = deque()

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting)

    def submit(self, job: Job, done: Done | None = None, first: bool = False) -> bool:
        if len(self._waiting) >= _JOBS_MAX:
            return False
        if first:
            self._waiting.appendleft((job, done))
        else:
            self._waiting.append((job, done))
        if self._at_once:
            self.drain()
        return True

    def step(self) -> bool:
        """Run one job and tell its outcome; False when none waits."""
        if not self._waiting:
            return False
        job, done = self._waiting.popleft()
        error = _attempt(job)
        self.ended += 1
        if done is not None:
            done(error)
        return True

    def drain(self) -> None:
        while self.step():
            pass

    def abandon(self) -> None:
        """Forget what has not run."""
        self._waiting.clear()


class _InlineFlusher:
    """The flusher's replacing of requests, without a thread."""

    def __init__(self, at_once: bool) -> None:
        self._at_once = at_once
        self._request: tuple[Sequence[File], int, FlushDone] | None = None

    def request(self, files: Sequence[File], target: int, done: FlushDone) -> None:
        self._request = (files, target, done)
        if self._at_once:
            self.drain()

    def step(self) -> bool:
        """Carry out the waiting request; False when there is none."""
        if self._request is None:
            return False
        (files, target, done), self._request = self._request, None
        done(target, _attempt(partial(_sync_all, files)))
        return True

    def drain(self) -> None:
        while self.step():
            pass


class InlineBackground:
    """No threads.  `at_once=False`: nothing happens until step() or a drain."""

    def __init__(self, at_once: bool = True) -> None:
        self._flusher = _InlineFlusher(at_once)
        self._housekeeper = _InlineWorker(at_once)
        self._cold_reader = _InlineWorker(at_once)
        self.flusher: Flusher = self._flusher
        self.housekeeper: Worker = self._housekeeper
        self.cold_reader: Worker = self._cold_reader

    def step(self) -> bool:
        """Let each of the three do one thing; False when all are idle."""
        return any([self._flusher.step(), self._housekeeper.step(), self._cold_reader.step()])

    def close(self) -> None:
        """Run everything that was submitted, but for cold reads, and report the outcomes."""
        self._flusher.drain()
        self._housekeeper.drain()
        self._cold_reader.abandon()
