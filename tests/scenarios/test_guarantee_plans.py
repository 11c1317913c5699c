"""Which indexes the guarantee's scans use among many stubs of which few are due, on four real databases.

Half of the deliveries are confirmed and logged, the others are open and not due yet, but for 100 that are due and lost.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import pytest

from gantry.guarantee import dialects, statements
from testkit.guaranteetables import DATABASES, Tables, opened

LOST = 100
NOW = 1_000
MANY = "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1000) "
GIVEN = {"now_ms": NOW, "before_ms": 500, "resends_max": 5, "rows_max": 10_000, "consumer_group": "packing"}
# The scans that a resend process repeats, and how many rows each brings.
SCANS = {
    "missing": LOST, "exhausted": 0, "stuck": 0, "overdue": LOST, "exhausted_untold": 0, "stuck_untold": 0,
    "unsettled": 0,
}  # fmt: skip


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((name, size), marks=[pytest.mark.slow] if size > 100_000 else [], id=f"{name}-{size}")
        for name, size in itertools.product(DATABASES, (20_000, 1_000_000))
    ],
)
def tables(request: pytest.FixtureRequest) -> Iterator[Tables]:
    name, size = request.param
    with opened(name) as made:
        fill(made, size)
        yield made


def fill(tables: Tables, size: int) -> None:
    """`size` stubs for one group, a thousand a time."""
    half = size // 2
    stub = (
        "INSERT INTO guarantee_stub (message_id, topic, body, message_keys, tags, properties, status, groups_expected,"
        " created_at_ms, changed_at_ms, changed_by)\nSELECT CONCAT('id-', n + :from), 'Orders', :body, '', '', '{}',"
        " 'open', 1, n + :from, 0, '' FROM numbers"
    )
    delivery = (
        "INSERT INTO guarantee_delivery (message_id, consumer_group, state, resend_by, next_resend_at_ms, copy_topic,"
        " broker, queue_id, queue_offset, created_at_ms, changed_at_ms, changed_by)\nSELECT CONCAT('id-', n + :from),"
        f" 'packing', CASE WHEN n + :from <= {half} THEN 'confirmed' ELSE 'open' END, 'retry',"
        f" CASE WHEN n + :from > {size - LOST} THEN 10 ELSE 100000000 + n END, 'Orders', 'broker-a',"
        " (n + :from) % 8, 1, 0, 0, '' FROM numbers"
    )
    log = (
        "INSERT INTO guarantee_log (consumer_group, message_id, topic, broker, queue_id, queue_offset,"
        " received_at_ms)\nSELECT 'packing', CONCAT('id-', n + :from), 'Orders', 'broker-a', (n + :from) % 8,"
        " n + :from, 5 + n / 100 FROM numbers"
    )
    for text, count in ((stub, size), (delivery, size), (log, half)):
        head, _, rest = text.partition("\n")
        for start in range(0, count, 1000):
            said = f"{head}\n{MANY}{rest}" if tables.dialect.name != "postgresql" else f"{MANY}{head}\n{rest}"
            if tables.dialect.name == "sqlite":
                said = said.replace("CONCAT('id-', n + :from)", "'id-' || (n + :from)")
            tables.run(tables.of(said.replace(":from", str(start))), body=b"x" * 200)
    tables.commit()
    how = "ANALYZE" if tables.dialect.name in ("sqlite", "postgresql") else "ANALYZE TABLE {}"
    for table in ("guarantee_stub", "guarantee_delivery", "guarantee_log"):
        tables.ask(how.format(table)) if "{}" in how else tables.run(how)
    tables.commit()


def plan(tables: Tables, name: str) -> list[str]:
    """A line for each access to a table: the kind of access, and the index."""
    text, named = getattr(tables.say, name), getattr(statements.statements(tables.dialect, "named"), name)
    given = {each: value for each, value in GIVEN.items() if f":{each}" in named}
    if tables.dialect.name == "sqlite":
        return [row[3] for row in tables.ask(f"EXPLAIN QUERY PLAN {text}", **given)]
    if tables.dialect.name != "postgresql":
        is_mysql = tables.dialect.name == "mysql"
        rows = tables.ask(f"EXPLAIN {'FORMAT=TRADITIONAL ' * is_mysql}{text}", **given)
        kind, index = (4, 6) if is_mysql else (3, 5)
        return [f"{row[kind]} {row[index]} {row[-1]}" for row in rows]
    # Also a plan that is made without a look at the parameters, as for statements that a driver prepares.
    dollars, names = dialects.positional(named, "dollar")
    values = ", ".join(f"'{given[each]}'" for each in names)
    lines = [row[0] for row in tables.ask(f"EXPLAIN {text}", **given)]
    tables.run(f"PREPARE asked AS {dollars}")
    tables.run("SET plan_cache_mode = force_generic_plan")
    lines += [row[0] for row in tables.ask(f"EXPLAIN EXECUTE asked ({values})")]
    tables.run("RESET plan_cache_mode")
    tables.run("DEALLOCATE asked")
    return [line for line in lines if "Scan" in line]


@pytest.mark.parametrize("name", SCANS)
def test_a_scan_reads_what_is_due_by_its_index_and_nothing_as_a_whole(tables: Tables, name: str) -> None:
    lines = plan(tables, name)
    print(*lines, sep="\n")
    index = "guarantee_log_unsettled" if name == "unsettled" else "guarantee_delivery_due"
    assert any(index in line for line in lines), lines
    # Unsettled effects are few, so they may be sorted.
    assert name == "unsettled" or not any("filesort" in line or "TEMP B-TREE" in line for line in lines), lines
    whole = ("Seq Scan", "SCAN d", "SCAN s", "SCAN l", "SCAN guarantee", "ALL ", "index ")
    assert not any(line.strip().startswith(whole) or "-> Seq" in line for line in lines), lines
    began = time.perf_counter()
    assert len(tables.ask(getattr(tables.say, name), **GIVEN)) == SCANS[name]
    print(f"{(time.perf_counter() - began) * 1000:.1f} ms")


def test_the_greatest_offset_of_a_queue_is_one_row_of_its_index(tables: Tables) -> None:
    lines = plan(tables, "missing")
    assert any("guarantee_log_queue" in line for line in lines), lines
