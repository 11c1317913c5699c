"""Apache's own integration tests: a part that takes two minutes, and slowly all of them; see `conformance`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from interop import conformance
from interop.conformance import Brokers, Expected, Outcome
from interop.conftest import require

CAUSES, CLASSES = conformance.expectations()
# Those that take some seconds each and have no time bounds that a busy machine exceeds; in three JVMs.
QUICK = {
    "sending": (
        "client.producer.oneway.OneWaySendExceptionIT",
        "client.producer.async.AsyncSendExceptionIT",
        "client.producer.exception.msg.ChinaPropIT",
        "client.producer.exception.msg.MessageUserPropIT",
        "client.producer.querymsg.QueryMsgByIdIT",
        "client.producer.order.OrderMsgIT",
    ),
    "popping": (
        "client.consumer.pop.BatchAckIT",
        "client.consumer.pop.PopBigMessageIT",
        "client.consumer.pop.PopMessageAndForwardingIT",
    ),
    "consuming": (
        "client.consumer.filter.SqlFilterIT",
        "client.consumer.tag.TagMessageWithMulConsumerIT",
        "client.consumer.broadcast.tag.BroadcastTwoConsumerSubTagIT",
        "client.consumer.topic.OneConsumerMulTopicIT",
    ),
}


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    require("java")
    with conformance.brokers(tmp_path_factory.mktemp("conformance")) as made:
        yield made


@pytest.mark.parametrize("names", QUICK.values(), ids=QUICK.keys())
def test_classes_of_apaches_tests_do_what_the_document_says(at: Brokers, names: tuple[str, ...], home: Path) -> None:
    found = conformance.run(at, names, home)
    assert not [line for name in names for line in conformance.differences(name, found[name], CLASSES[name])]


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSES)
def test_each_class_of_apaches_tests_does_what_the_document_says(at: Brokers, name: str, home: Path) -> None:
    for attempt in ("first", "second"):  # they have time bounds for a quiet machine
        found = conformance.run(at, [name], home / attempt)[name]
        lines = conformance.differences(name, found, CLASSES[name])
        if not lines:
            break
    assert not lines


def test_what_differs_from_the_file_is_named() -> None:
    expected = Expected(1, {"known": "batchcq"})
    passed, failed = Outcome("passed"), Outcome("failed", "why")
    assert not conformance.differences("C", {"a": passed, "known": failed}, expected)
    assert conformance.differences("C", {"a": failed, "known": failed}, expected) == ["C: a failed: why"]
    assert conformance.differences("C", {"a": passed, "known": passed}, expected) == [
        "C: known passes; it was not expected to"
    ]
    assert conformance.differences("C", {"known": failed}, expected) == ["C: 0 passed, 1 were expected to"]
    cut_off = {conformance.CUT_OFF: Outcome("not run", "180 s")}
    assert conformance.differences("C", cut_off, expected) == ["C: (time) not run: 180 s"]
    assert not conformance.differences("C", cut_off | {"a": passed}, expected), "what is expected to fail is left"


def test_a_test_that_does_not_pass_has_a_cause_that_is_explained() -> None:
    _, classes = conformance.expectations("cause a: because\nC 2\n    t[0] a\n")
    assert classes == {"C": Expected(2, {"t[0]": "a"})}
    with pytest.raises(AssertionError, match="which is not explained"):
        conformance.expectations("C 2\n    t b\n")


def test_every_cause_is_one_of_a_test() -> None:
    assert set(CAUSES) == {word for expected in CLASSES.values() for word in expected.causes.values()}
