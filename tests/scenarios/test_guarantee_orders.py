"""The worked example under kill -9: a shop, two consumer groups, resend processes, a database and Redis, all real.

While orders are put, something is killed every few seconds: the shop, a consumer, the resend process, the broker; or
Redis loses its keys, or hangs.  In the end every account is exact.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest
import redis

from testkit.mysqlserver import running_mariadb
from testkit.ordersplay import GROUPS, Orders, exact
from testkit.ports import free_port
from testkit.postgres import running_postgres
from testkit.process import GantryProcess
from testkit.redisserver import running_redis

_LOOK_S = 1.0


class Broker:
    """`with Broker(folder) as broker:`; it can be killed, and comes back on its ports and its folder."""

    def __init__(self, folder: Path) -> None:
        port, self.kills = free_port(), 0
        self.nameserver = f"127.0.0.1:{port}"
        ports = {"standalone.nameserver_port": str(port), "network.port": str(free_port())}
        self._start = partial(GantryProcess, folder, ports)
        self._process = self._start()

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.__exit__(None, None, None)

    def kill(self) -> None:
        """kill -9, and start it again; it serves a moment later."""
        self._process.__exit__(None, None, None)
        self._process = self._start(wait=False)
        self.kills += 1


@contextmanager
def example(tmp_path: Path, kind: str, members: int) -> Iterator[tuple[Orders, Broker]]:
    with ExitStack() as stack:
        if kind == "postgresql":
            database = stack.enter_context(running_postgres()).database()
        else:
            server = stack.enter_context(running_mariadb())
            database = f"mariadb://root@127.0.0.1:{server.port}/{server.database()}"
        broker = stack.enter_context(Broker(tmp_path / "broker"))
        url = stack.enter_context(running_redis()).url
        folder = tmp_path / "logs"
        folder.mkdir()
        orders = stack.enter_context(Orders(folder, database, broker.nameserver, url))
        for group in GROUPS:
            orders.members(group, members)
        yield orders, broker


async def accounts_become_exact(
    orders: Orders, broker: Broker, count: int, every_s: float, seed: int, patience_s: float
) -> None:
    client = redis.Redis.from_url(orders.redis, socket_timeout=5.0)
    faults = [client.flushall, partial(client.execute_command, "CLIENT", "PAUSE", "3000"), broker.kill]
    orders.start()
    killing = asyncio.create_task(orders.killing(seed, every_s, faults))
    asyncio.get_running_loop().call_later(2 * every_s, broker.kill)  # whatever the dice say
    try:
        async with asyncio.timeout(patience_s):
            await orders.all_put(count)
            killing.cancel()
            while orders.open_deliveries() or len(orders.ask("SELECT 1 FROM orders")) < count:
                assert not killing.done() or killing.cancelled(), killing.exception()
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        text = "SELECT consumer_group, state, COUNT(*) FROM guarantee_delivery GROUP BY consumer_group, state"
        pytest.fail(f"{orders.ask(text)} after {patience_s:g} s\n{orders.logs()}")
    finally:
        killing.cancel()
        client.close()
    assert broker.kills
    assert orders.accounts() == {group: exact(count) for group in GROUPS}
    assert orders.ask("SELECT COUNT(*), SUM(cents) FROM orders") == [exact(count)]


@pytest.mark.timeout(600)
async def test_accounts_are_exact_whatever_is_killed(tmp_path: Path) -> None:
    with example(tmp_path, "postgresql", 1) as (orders, broker):
        await accounts_become_exact(orders, broker, 500, 2.0, 1, 500.0)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
async def test_fifty_thousand_orders_are_exact_whatever_is_killed(tmp_path: Path, kind: str) -> None:
    with example(tmp_path, kind, 4) as (orders, broker):
        await accounts_become_exact(orders, broker, 50_000, 5.0, 2, 7000.0)
