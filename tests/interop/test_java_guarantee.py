"""The example's consumer in plain JDBC: the same tables, the same accounts, also when its JVM is killed."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from gantry.guarantee.dialects import POSTGRESQL, positional
from gantry.guarantee.statements import statements
from interop import prepare
from interop.conftest import require
from testkit.ordersplay import EXAMPLE, GROUPS, Orders, exact
from testkit.postgres import running_postgres
from testkit.process import GantryProcess

SOURCE = EXAMPLE / "java" / "Account.java"
ORDERS = 60
_KILL_AFTER_S = 15.0
_LOOK_S = 0.5


def test_the_program_has_the_texts_of_the_statements() -> None:
    say = statements(POSTGRESQL, "named")
    texts = re.findall(r'static final String (\w+) = """\n(.*?)""";', SOURCE.read_text(), re.DOTALL)
    assert [name for name, _ in texts] == ["LOG", "LOOK", "CONFIRM", "VERDICT", "REFUSE"]
    for name, text in texts:
        lines = "\n".join(line.removeprefix(" " * 8) for line in text.split("\n"))
        assert lines == positional(getattr(say, name.lower()), "qmark")[0], name


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_java_group_has_each_order_once_though_its_process_is_killed(tmp_path: Path) -> None:
    require("java")
    jars = prepare.guarantee_java()
    with running_postgres() as server, GantryProcess(tmp_path / "broker") as broker:
        database, folder = server.database(), tmp_path / "logs"
        folder.mkdir()
        nameserver = "{}:{}".format(*broker.addresses["nameserver"])
        with Orders(folder, database, nameserver) as orders:
            orders.members("packing", 1)
            name = database.rpartition("/")[2]
            jdbc = f"jdbc:postgresql://127.0.0.1:{server.port}/{name}?user=gantry&connectTimeout=10"
            flags = ["-Xmx256m", *prepare.TEST_FLAGS, *prepare.JAVA_FLAGS, f"-Duser.home={tmp_path}"]
            orders.commands["billing"] = ["java", *flags, "-cp", jars, "Account", "billing", nameserver, jdbc]
            orders.start()
            killing = asyncio.create_task(orders.killing(1, _KILL_AFTER_S))
            try:
                async with asyncio.timeout(600):
                    await orders.all_put(ORDERS, 2)
                    await asyncio.sleep(_KILL_AFTER_S)  # the group reads while it is killed
                    killing.cancel()
                    while orders.open_deliveries():  # noqa: ASYNC110  other processes close them
                        await asyncio.sleep(_LOOK_S)
            except TimeoutError:
                pytest.fail(orders.logs())
            finally:
                killing.cancel()
            assert orders.accounts() == {group: exact(ORDERS) for group in GROUPS}
