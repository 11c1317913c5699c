"""Make the tables of the guarantee and of the example, and declare who has to handle the orders."""

from __future__ import annotations

import os
import sys
import time
from contextlib import closing

from gantry.guarantee import migration
from gantry.guarantee.databases import opened
from gantry.guarantee.producing import declare
from gantry.guarantee.running import run
from gantry.guarantee.statements import statements

TABLES = (
    "CREATE TABLE orders (number BIGINT NOT NULL PRIMARY KEY, cents BIGINT NOT NULL)",
    "CREATE TABLE account (consumer_group VARCHAR(64) NOT NULL PRIMARY KEY, "
    "orders BIGINT NOT NULL, cents BIGINT NOT NULL)",
)


def main(groups: list[str]) -> None:
    """One account for each group."""
    dialect, connect = opened(os.environ["DATABASE"])
    now_ms = time.time_ns() // 1_000_000
    say = statements(dialect, "named")
    with closing(connect()) as connection, closing(connection.cursor()) as cursor:
        migration.install(connection, dialect, now_ms)
        for text in TABLES:
            cursor.execute(text)
        for group in groups:
            run(declare(say, "Orders", group, "retry", now_ms, "setup"), connection)
            cursor.execute("INSERT INTO account VALUES (%s, 0, 0)", (group,))
        connection.commit()


if __name__ == "__main__":
    main(sys.argv[1:] or ["packing", "billing"])
