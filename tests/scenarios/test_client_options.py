"""What each option of produce, consume, tail and peek does, against a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gantry.cli import consume, produce
from gantry.client.consumer import ConsumerSettings, StartFrom
from testkit.commandline import Done, name_server, run
from testkit.process import GantryProcess

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module", autouse=True)
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with GantryProcess(tmp_path_factory.mktemp("options") / "data") as process:
        host, port = process.addresses["nameserver"]
        with name_server(f"{host}:{port}"):
            yield


def well(*arguments: str) -> Done:
    done = run(*arguments)
    assert done.code == 0, done
    return done


def sent(topic: str, *arguments: str) -> Rows:
    rows: Rows = json.loads(well("produce", topic, *arguments, "--output", "json").out)
    return rows


def shown(*arguments: str) -> Rows:
    return [json.loads(line) for line in well(*arguments, "--output", "json").out.splitlines()]


def bodies(*arguments: str) -> list[str]:
    return [str(row["body"]) for row in shown(*arguments)]


def one_queue(topic: str, *words: str) -> None:
    well("topic", "create", topic, "--queues", "1")
    for word in words:
        sent(topic, word)


@pytest.mark.shows("produce --tags", "produce --keys", "produce --property")
def test_a_message_carries_what_it_was_given() -> None:
    well("topic", "create", "carried", "--queues", "1")
    well("produce", "carried", "x", "--tags", "t", "--keys", "a,b", "--property", "colour=red", "--property", "n=1=1")
    (row,) = shown("peek", "carried")
    assert (row["tags"], row["keys"]) == ("t", ["a", "b"])
    assert (row["properties"]["colour"], row["properties"]["n"]) == ("red", "1=1")
    assert run("produce", "carried", "x", "--property", "colour").code == 2


@pytest.mark.shows("produce --key")
def test_messages_of_one_key_go_to_one_queue_in_order() -> None:
    rows = sent("keyed", *"abcdef", "--key", "order-1")
    assert len({row["queue"] for row in rows}) == 1 and [row["offset"] for row in rows] == list(range(6))
    assert len({row["queue"] for row in sent("keyed", *"abcdefgh")}) > 1


def test_a_body_may_be_any_bytes_and_nothing_else_may() -> None:
    sent("bytes", "\udcff\udc80three")
    assert bodies("tail", "bytes", "--last", "1", "--count", "1") == ["\\xff\\x80three"]
    for flag in ("--tags", "--keys", "--key", "--group"):
        refused = run("produce", "bytes", "x", flag, "\udcff")
        assert refused.code == 2 and "is not UTF-8" in refused.err, refused
    assert run("produce", "bytes", "x", "--property", "a=\udcff").code == 2
    assert run("topic", "find", "bytes", "--key", "\udcff").code == run("lag", "--group", "\udcff").code == 2


@pytest.mark.shows("produce --group", "produce --in-flight")
def test_the_producer_group_and_how_many_sends_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    groups, under_way = [], [0]

    class Watched(produce.Producer):
        def __init__(self, group: str, **more: Any) -> None:
            groups.append(group)
            super().__init__(group, **more)

        async def send(self, *arguments: Any, **more: Any) -> Any:
            under_way.append(under_way[-1] + 1)
            try:
                return await super().send(*arguments, **more)
            finally:
                under_way.append(under_way[-1] - 1)

    monkeypatch.setattr(produce, "Producer", Watched)
    for width in (1, 3):
        under_way[:] = [0]
        sent("flying", *"abcdefg", "--in-flight", str(width), "--group", "shop")
        assert max(under_way) == width
    assert groups == ["shop", "shop"]


@pytest.mark.shows("consume --group", "consume --count", "consume --idle")
def test_each_group_gets_all_and_goes_on_where_it_ended() -> None:
    one_queue("shared", *"abc")
    assert bodies("consume", "shared", "--group", "first", "--count", "2") == ["a", "b"]
    assert bodies("consume", "shared", "--group", "first", "--idle", "0.5") == ["c"]
    assert bodies("consume", "shared", "--group", "second", "--count", "3") == ["a", "b", "c"]


@pytest.mark.shows("consume --mode")
def test_a_group_that_pops_gives_back_what_it_did_not_print() -> None:
    one_queue("popped", *"abc")
    first = bodies("consume", "popped", "--group", "g-pop", "--mode", "pop", "--count", "1")
    rest = bodies("consume", "popped", "--group", "g-pop", "--mode", "pop", "--count", "2")
    assert sorted([*first, *rest]) == ["a", "b", "c"]


@pytest.mark.shows("consume --tags", "consume --sql", "tail --tags")
def test_only_what_was_asked_for_comes() -> None:
    well("topic", "create", "chosen", "--queues", "1")
    for tag, n in (("x", 1), ("y", 2), ("x", 3)):
        sent("chosen", f"{tag}{n}", "--tags", tag, "--property", f"n={n}")
    assert bodies("consume", "chosen", "--group", "g-tags", "--tags", "y || z", "--count", "1") == ["y2"]
    assert bodies("consume", "chosen", "--group", "g-sql", "--sql", "n > 2", "--count", "1") == ["x3"]
    assert bodies("tail", "chosen", "--tags", "y", "--last", "3", "--count", "1") == ["y2"]


@pytest.mark.shows("consume --from")
@pytest.mark.parametrize(("given", "start"), [("first", StartFrom.FIRST), ("last", StartFrom.LAST)])
def test_a_new_group_begins_where_it_is_told(
    given: str, start: StartFrom, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_queue(f"from-{given}", "a")
    settings: list[ConsumerSettings] = []

    class Watched(consume.Consumer):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            settings.append(more["settings"])
            super().__init__(*arguments, **more)

    monkeypatch.setattr(consume, "Consumer", Watched)
    bodies("consume", f"from-{given}", "--group", f"g-{given}", "--from", given, "--idle", "0.1")
    assert [one.start_from for one in settings] == [start]


@pytest.mark.shows("tail --last", "tail --count", "tail --idle")
def test_a_tail_begins_so_many_back_and_ends_when_told() -> None:
    one_queue("tailed", *"abcde")
    assert bodies("tail", "tailed", "--last", "3", "--count", "2") == ["c", "d"]
    assert bodies("tail", "tailed", "--last", "3", "--idle", "0.3") == ["c", "d", "e"]
    assert bodies("tail", "tailed", "--idle", "0.1") == []


@pytest.mark.shows("peek --queue", "peek --offset", "peek --time", "peek --count")
def test_a_look_begins_at_a_place_or_a_moment() -> None:
    one_queue("peeked", *"abcde")
    assert bodies("peek", "peeked", "--count", "2") == ["d", "e"]
    assert bodies("peek", "peeked", "--offset", "1", "--count", "2") == ["b", "c"]
    assert bodies("peek", "peeked", "--queue", "broker-a/0", "--offset", "4") == ["e"]
    third = shown("peek", "peeked", "--offset", "2", "--count", "1")[0]
    from_there = shown("peek", "peeked", "--time", f"@{third['store_ms']}")
    assert all(row["store_ms"] >= third["store_ms"] for row in from_there) and from_there[-1]["body"] == "e"
    missing = run("peek", "peeked", "--queue", "7")
    assert missing.code == 1 and "no such queue" in missing.err
