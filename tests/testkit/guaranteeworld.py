"""What services of a model share: one database in memory, Redis, a broker, clocks; each fails as the model says."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

from gantry.errors import OutcomeUnknownError, RefusedError, UnreachableError
from gantry.guarantee.running import run
from gantry.guarantee.units import unit
from gantry.model.message import Message

GROUPS = ("packing", "payments")


class CrashError(BaseException):
    """The process died; no handler of it runs usefully any more."""


class Connection(sqlite3.Connection):
    """One in memory for all; `fate` is what becomes of the next commits."""

    fate = "good"

    def commit(self) -> None:
        fate, self.fate = self.fate, "good"
        if fate == "fails":
            raise sqlite3.OperationalError("could not serialize access")
        super().commit()
        if fate == "answer lost":
            raise sqlite3.OperationalError("server closed the connection")

    def close(self) -> None:
        """Stay open for the others."""


class Clock:
    """The world's time, seen by a process with a skew."""

    def __init__(self, world: Any, skew_ms: int = 0) -> None:
        self.world, self.skew_ms = world, skew_ms

    def now_ms(self) -> int:
        return self.world.now + self.skew_ms


class Redis:
    """As much of a client as `Keys` uses; a dead process reaches it no more."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.is_dead = False

    def _ask(self) -> dict[str, tuple[str, int]]:
        if self.is_dead or self.world.is_redis_down:
            raise ConnectionError("Redis is down")
        return {name: kept for name, kept in self.world.kept.items() if kept[1] > self.world.now}

    def set(self, name: str, value: str, nx: bool, px: int) -> bool:
        found = self._ask()
        if name in found and nx:
            return False
        self.world.kept = {**found, name: (value, self.world.now + px)}
        return True

    def get(self, name: str) -> bytes | None:
        found = self._ask().get(name)
        return None if found is None else found[0].encode()

    def pttl(self, name: str) -> int:
        found = self._ask().get(name)
        return -2 if found is None else found[1] - self.world.now

    def eval(self, script: str, _count: int, name: str, owner: str, *more: int) -> None:
        found = self._ask()
        if found.get(name, ("", 0))[0] == owner:
            del found[name]
            if "del" not in script:
                found[name] = ("done", self.world.now + more[0])
            self.world.kept = found


class Suspended:
    """Awaited where a process waits for the network: the others go on meanwhile."""

    def __await__(self) -> Generator[None, str, str]:
        return (yield)


class Database:
    """Runs steps on the one connection, as `BlockingDatabase` does."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def run(self, steps: Any) -> Any:
        return self.run_now(steps)

    def run_now(self, steps: Any) -> Any:
        with unit(self.connection):
            return run(steps, self.connection)


class Broker:
    """What a resend process uses of the producer and of the administration."""

    def __init__(self, world: Any, knows_progress: bool) -> None:
        self.world = world
        self.knows_progress = knows_progress

    async def send(self, message: Message, *, key: str, copy: Any) -> Any:
        assert bytes(message.body) == b"\xff\0"
        fate = await Suspended()
        match fate:
            case "refused":
                raise RefusedError(13, "too long")
            case "lost":
                raise OutcomeUnknownError("no answer")
            case "dies":
                raise CrashError
        place = self.world.store(copy.retry_topic or message.topic, copy.message_id)
        if fate == "answer lost":
            raise OutcomeUnknownError("no answer")
        if fate == "dies after":
            raise CrashError
        queue = SimpleNamespace(topic=place.copy_topic, broker_name="b", queue_id=place.queue_id)
        return SimpleNamespace(message_id=copy.message_id, queue=queue, queue_offset=place.queue_offset)

    async def cluster(self) -> Any:
        return SimpleNamespace(masters=lambda: ["b"])

    async def groups(self) -> dict[str, Any]:
        return dict.fromkeys(GROUPS, SimpleNamespace(consume_orderly=False))

    async def progress(self, group: str, topic: str) -> list[Any]:
        if not self.knows_progress:
            raise UnreachableError("the broker is restarted")
        queues = [SimpleNamespace(broker_name="b", queue_id=number) for number in (0, 1)]
        consumed = self.world.consumed
        return [SimpleNamespace(queue=each, committed=consumed[group, topic, each.queue_id]) for each in queues]
