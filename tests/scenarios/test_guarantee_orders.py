"""The worked example under kill -9: a shop, two consumer groups, resend processes, a database and Redis, all real.

While orders are put, something is killed every few seconds: the shop, a consumer, the resend process; or Redis loses
its keys, or hangs.  In the end every account is exact.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import redis

from testkit.mysqlserver import running_mariadb
from testkit.ordersplay import GROUPS, Orders, exact
from testkit.postgres import running_postgres
from testkit.process import GantryProcess
from testkit.redisserver import running_redis

_LOOK_S = 1.0


@contextmanager
def example(tmp_path: Path, kind: str, members: int) -> Iterator[Orders]:
    with ExitStack() as stack:
        if kind == "postgresql":
            database = stack.enter_context(running_postgres()).database()
        else:
            server = stack.enter_context(running_mariadb())
            database = f"mariadb://root@127.0.0.1:{server.port}/{server.database()}"
        broker = stack.enter_context(GantryProcess(tmp_path / "broker"))
        url = stack.enter_context(running_redis()).url
        folder = tmp_path / "logs"
        folder.mkdir()
        nameserver = "{}:{}".format(*broker.addresses["nameserver"])
        orders = stack.enter_context(Orders(folder, database, nameserver, url))
        for group in GROUPS:
            orders.members(group, members)
        yield orders


async def accounts_become_exact(orders: Orders, count: int, every_s: float, seed: int, patience_s: float) -> None:
    client = redis.Redis.from_url(orders.redis, socket_timeout=5.0)
    faults = [lambda: client.flushall(), lambda: client.execute_command("CLIENT", "PAUSE", "3000")]
    orders.start()
    killing = asyncio.create_task(orders.killing(seed, every_s, faults))
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
    assert orders.accounts() == {group: exact(count) for group in GROUPS}
    assert orders.ask("SELECT COUNT(*), SUM(cents) FROM orders") == [exact(count)]


@pytest.mark.timeout(600)
async def test_accounts_are_exact_whatever_is_killed(tmp_path: Path) -> None:
    with example(tmp_path, "postgresql", 1) as orders:
        await accounts_become_exact(orders, 500, 2.0, 1, 500.0)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
async def test_fifty_thousand_orders_are_exact_whatever_is_killed(tmp_path: Path, kind: str) -> None:
    with example(tmp_path, kind, 4) as orders:
        await accounts_become_exact(orders, 50_000, 5.0, 2, 7000.0)
