"""Filters as Apache's clients ask for them, and expressions as Apache's own filter reads them."""

from __future__ import annotations

import time

import pytest
from hypothesis import HealthCheck, given, settings

from gantry.consume import bloom
from gantry.consume.sql92.program import Program, compile_sql
from gantry.consume.sql92.tokens import SqlError
from gantry.leaves import properties
from interop import servers
from interop.clients import CLIENTS, Client, Running
from interop.conftest import require
from interop.processes import Driver, DriverError, Json
from testkit import referencesql
from testkit.referencesql import Expression
from testkit.sqlexpressions import MESSAGES, expressions

SQL = "number BETWEEN 3 AND 6 AND colour = 'blue' AND TAGS IN ('TagA') AND nothing IS NULL"
HEARTBEAT_S = 60.0
WANTED = [f"m-{i}" for i in range(3, 7)]


@pytest.fixture
def driver(running: Running, java: Client) -> Driver:
    return running.driver(java)


@pytest.fixture
def topic(server: servers.Server, driver: Driver, name: str) -> str:
    """A topic with ten messages of TagA, numbered, and ten of TagB."""
    servers.create_topic(server, name)
    driver.call("send", group=name, topic=name, count=10, prefix="m", tag="TagA")
    driver.call("send", group=name, topic=name, count=10, prefix="n", tag="TagB")
    return name


def bodies(messages: object) -> list[str]:
    assert isinstance(messages, list)
    return sorted(str(message["body"]) for message in messages)


def pull(driver: Driver, **fields: object) -> Json:
    """A pull by SQL, as soon as the client knows the broker's version: it comes with its first heartbeat's answer."""
    deadline = time.monotonic() + HEARTBEAT_S
    while True:
        try:
            return driver.call("pull", **fields)
        except DriverError as error:
            if "does not upgrade" not in str(error) or time.monotonic() > deadline:
                raise
        driver.settle(0.2)


def program(text: str) -> Program | None:
    try:
        return compile_sql(text)
    except SqlError:
        return None


def test_a_push_consumer_with_sql_gets_what_it_wants_and_nothing_else(driver: Driver, topic: str) -> None:
    driver.call("subscribe", id=topic + "a", group=topic, topic=topic, sql=SQL)
    driver.receive(topic + "a", len(WANTED))
    driver.call("send", group=topic, topic=topic, count=5, prefix="later", tag="TagA")
    driver.receive(topic + "a", len(WANTED) + 2)
    driver.settle(1.0)
    assert bodies(driver.received(topic + "a")) == ["later-3", "later-4", *WANTED]
    driver.call("close", id=topic + "a")


def test_ali_ons_filters_by_sql(running: Running, topic: str) -> None:
    """The C++ clients cannot: their subscriptions know tags only."""
    require("node")
    node = running.driver(CLIENTS["ali-ons-3.12"])
    node.call("subscribe", id=topic + "n", group=topic + "n", topic=topic, sql=SQL)
    node.receive(topic + "n", len(WANTED))
    node.settle(1.0)
    assert bodies(node.received(topic + "n")) == WANTED
    node.call("close", id=topic + "n")


def test_pulls_filter_by_sql_and_by_tag(driver: Driver, topic: str) -> None:
    assert bodies(pull(driver, group=topic, topic=topic, sql=SQL)["messages"]) == WANTED
    found = bodies(driver.call("pull", group=topic, topic=topic, expression="TagB || TagC")["messages"])
    assert found == sorted(f"n-{i}" for i in range(10))
    answer = pull(driver, group=topic, topic=topic, sql="number = 'none'")
    assert answer["messages"] == [] and "NO_MATCHED_MSG" in answer["statuses"]  # type: ignore[operator]


def test_a_lite_pull_consumer_filters_by_sql(driver: Driver, topic: str) -> None:
    answer = driver.call("lite", group=topic, topic=topic, sql=SQL, count=len(WANTED), wait_ms=60_000)
    assert bodies(answer["messages"]) == WANTED


def test_a_consumer_with_a_fault_in_its_sql_does_not_start(driver: Driver, topic: str) -> None:
    with pytest.raises(DriverError) as refused:
        driver.call("subscribe", id=topic + "a", group=topic, topic=topic, sql="number > ")
    assert refused.value.code == 23
    assert "Invalid MessageSelector." in str(refused.value)


@pytest.mark.only_on_gantry
def test_a_pull_with_a_fault_in_its_sql_is_refused(driver: Driver, topic: str) -> None:
    with pytest.raises(DriverError) as refused:
        pull(driver, group=topic, topic=topic, sql="number > ")
    assert refused.value.code == 23


def test_bloom_bits_are_those_of_rocketmq(driver: Driver) -> None:
    for group, topic in (("g", "T"), ("a-longer-group-name", "Orders"), ("группа", "x" * 100)):
        assert driver.call("bloom", group=group, topic=topic)["positions"] == bloom.positions(group, topic)


def test_every_expression_means_to_us_what_it_means_to_rocketmq(driver: Driver) -> None:
    has_parts = driver.name != "java-4.9.7"  # CONTAINS came with 5.2

    @settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(expressions(has_parts), MESSAGES, MESSAGES)
    def compare(expression: Expression, first: dict[str, str], second: dict[str, str]) -> None:
        text = referencesql.sql(expression)
        ours = program(text)
        theirs: Json = driver.call("judge", sql=text, messages=[first, second])
        if ours is None:
            assert theirs["outcomes"] == "refused", text
        else:
            found = [ours.accepts(properties.pack(message)) for message in (first, second)]
            assert [outcome == "true" for outcome in theirs["outcomes"]] == found, text  # type: ignore[attr-defined]

    compare()


@pytest.mark.parametrize(
    "text",
    ["a > 5 -- comment\n", "a/**/=/* x */1", "a=1and b=2", "5<a", "a = 5L", "a=-5", "- -a = 1", "a IS NOT NULL",
     "NOT NOT a", "a NOT IN ('x')", "a = 'it''s'", "((a))", "a > .5", "a > 5.", "a > 1e3", "0 = a",
     "a = 2147483648", "a > 0.0", "a == 1", "a != 1", 'a = "x"', "a in (1)", "a = 1e400", "a = 9223372036854775808",
     "a not between 1 and 2", "a BETWEEN 5 AND 1", "a > 'x'", "TRUE", "NULL", "a IS TRUE", "a.b = 1",
     "a = $x AND _y = 1"],
)  # fmt: skip
def test_what_compiles_there_compiles_here(driver: Driver, text: str) -> None:
    is_theirs = driver.call("judge", sql=text, messages=[])["outcomes"] != "refused"
    assert (program(text) is not None) is is_theirs
