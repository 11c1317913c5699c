"""Keys in a real Redis: one effect with them, without them, and with a Redis that lies."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
import redis.asyncio

from gantry.guarantee import keys as keys_module
from gantry.guarantee import migration
from gantry.guarantee.consuming import Decision
from gantry.guarantee.dialects import SQLITE
from gantry.guarantee.idempotent import HeldElsewhereError, Idempotent, arrival_of
from gantry.guarantee.keys import AsyncRedisKeys, KeyState, RedisKeys
from gantry.guarantee.producing import OutgoingStub, write_stub
from gantry.guarantee.running import run
from gantry.guarantee.statements import statements
from gantry.guarantee.units import unit
from gantry.model.message import Message
from testkit.redisserver import RedisServer, running_redis


class Client(redis.Redis):
    """Counts what it is asked."""

    asked = 0

    def execute_command(self, *args: Any, **options: Any) -> Any:
        self.asked += 1
        return super().execute_command(*args, **options)


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with running_redis() as found:
        yield found


@pytest.fixture
def client(server: RedisServer) -> Iterator[Client]:
    with closing(Client.from_url(server.url, socket_timeout=0.2)) as found:
        yield found


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "tables.db")) as connection:
        migration.install(connection, SQLITE, 0)
        connection.execute("CREATE TABLE effects (message_id TEXT)")
        connection.commit()
        yield connection


def delivered(name: str, offset: int = 0) -> Any:
    queue = SimpleNamespace(topic="Orders", broker_name="broker-a", queue_id=0)
    return SimpleNamespace(message_id=name, queue=queue, queue_offset=offset)


def handle(guard: Idempotent, database: sqlite3.Connection, message: Any) -> Decision:
    with guard.effect(database, message) as effect:
        if effect:
            database.execute("INSERT INTO effects VALUES (?)", (message.message_id,))
        return effect.decision


def effects(database: sqlite3.Connection) -> int:
    return int(database.execute("SELECT COUNT(*) FROM effects").fetchone()[0])


def test_success_keeps_the_key_and_failure_deletes_it_but_only_its_owner_does(
    client: Client, database: sqlite3.Connection
) -> None:
    guard = Idempotent("packing", "sqlite", keys=RedisKeys(client, keep_s=100.0))
    with pytest.raises(RuntimeError), guard.effect(database, delivered("m1")):
        assert client.get("gantry:packing:m1") is not None
        raise RuntimeError("the business fails")
    assert client.get("gantry:packing:m1") is None
    assert handle(guard, database, delivered("m1")) is Decision.RUN
    assert client.get("gantry:packing:m1") == b"done"
    assert 0 < client.pttl("gantry:packing:m1") <= 100_000
    assert handle(guard, database, delivered("m1", 7)) is Decision.DONE
    # Ours expired, and another process has it by now.
    with pytest.raises(RuntimeError), guard.effect(database, delivered("m2")):
        client.set("gantry:packing:m2", "another")
        raise RuntimeError("the business fails")
    assert client.get("gantry:packing:m2") == b"another"


def test_a_message_that_is_held_elsewhere_is_delivered_again_until_its_effect_is_there(
    client: Client, database: sqlite3.Connection
) -> None:
    first, second = (Idempotent("packing", "sqlite", keys=RedisKeys(client)) for _ in range(2))
    with first.effect(database, delivered("m1")) as effect:
        assert effect
        assert second._keys is not None
        assert second._keys.take(arrival_of("packing", delivered("m1"))) is KeyState.ELSEWHERE
    client.set("gantry:packing:m2", "a process that was killed", px=60_000)
    with pytest.raises(HeldElsewhereError):
        handle(second, database, delivered("m2"))
    client.delete("gantry:packing:m2")  # as when it expires
    assert handle(second, database, delivered("m2")) is Decision.RUN
    # Done, though the key of who did it is still there as if it were under way.
    client.set("gantry:packing:m2", "a process that was killed", px=60_000)
    assert handle(second, database, delivered("m2")) is Decision.DONE


def test_a_message_whose_stub_comes_later_is_confirmed_by_a_copy_though_its_key_is_done(
    client: Client, database: sqlite3.Connection
) -> None:
    guard = Idempotent("packing", "sqlite", keys=RedisKeys(client))
    assert handle(guard, database, delivered("m1")) is Decision.RUN  # nothing to confirm yet
    stub = OutgoingStub("m1", Message("Orders", b"x"), "", ("packing",))
    with unit(database):
        run(write_stub(statements(SQLITE, "named"), stub, 0, 0, "shop"), database)
    for _ in range(2):
        assert handle(guard, database, delivered("m1", 7)) is Decision.DONE
        assert database.execute("SELECT state FROM guarantee_delivery").fetchall() == [("confirmed",)]
    assert effects(database) == 1


@pytest.mark.parametrize("left_ms", [None, 10**9])
def test_a_key_that_does_not_expire_in_time_holds_up_no_message(
    client: Client, database: sqlite3.Connection, left_ms: int | None
) -> None:
    guard = Idempotent("packing", "sqlite", keys=RedisKeys(client))
    client.set("gantry:packing:m1", "a process that was killed", px=left_ms)
    assert handle(guard, database, delivered("m1")) is Decision.RUN
    assert handle(guard, database, delivered("m1")) is Decision.DONE


def test_a_redis_that_is_flushed_or_remembers_what_the_database_lost_changes_nothing(
    client: Client, database: sqlite3.Connection
) -> None:
    guard = Idempotent("packing", "sqlite", keys=RedisKeys(client))
    assert handle(guard, database, delivered("m1")) is Decision.RUN
    client.flushall()
    assert handle(guard, database, delivered("m1")) is Decision.DONE
    client.set("gantry:packing:m2", "done")
    assert handle(guard, database, delivered("m2")) is Decision.RUN
    assert handle(guard, database, delivered("m2")) is Decision.DONE
    assert effects(database) == 2


def test_a_redis_that_hangs_or_is_gone_is_asked_once_and_then_left_alone(
    server: RedisServer, client: Client, database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.execute_command("CLIENT", "PAUSE", "60000")
    guard = Idempotent("packing", "sqlite", keys=RedisKeys(client))
    client.asked = 0
    assert [handle(guard, database, delivered("m1")) for _ in range(20)] == [Decision.RUN, *[Decision.DONE] * 19]
    assert client.asked == 1
    server.kill()
    monkeypatch.setattr(keys_module, "PAUSE_S", 0.0)
    for _ in range(2):
        handle(Idempotent("packing", "sqlite", keys=RedisKeys(client)), database, delivered("m2"))
    assert effects(database) == 2


def test_a_client_that_would_wait_for_ever_is_refused(server: RedisServer) -> None:
    client = redis.Redis.from_url(server.url, socket_timeout=None)
    with closing(client), pytest.raises(ValueError, match="socket_timeout"):
        RedisKeys(client)


async def test_keys_with_coroutines(server: RedisServer) -> None:
    client = redis.asyncio.Redis.from_url(server.url, socket_timeout=5.0)
    first, second = AsyncRedisKeys(client), AsyncRedisKeys(client)
    arrival = arrival_of("packing", delivered("m1"))
    assert await first.take(arrival) is KeyState.OURS
    assert await second.take(arrival) is KeyState.ELSEWHERE
    await second.release(arrival, KeyState.OURS)
    assert await second.take(arrival) is KeyState.ELSEWHERE
    await first.keep(arrival, KeyState.OURS)
    assert await second.take(arrival) is KeyState.DONE
    await client.aclose()
