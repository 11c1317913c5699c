"""RocketMQ 5's own consumers, through the proxy: leases, redelivery, order, filters, dead letters.

A test plays all clients side by side, a topic and a group each, because most of it is waiting for leases to end.  The
protocol has no lease below 10 s.
"""

from pathlib import Path

import pytest

from interop import grpcclients, proxies, servers
from interop.clients import Running
from interop.grpcclients import SDKS, create_topic, wait_until
from interop.processes import Json
from interop.sdkplay import Play

NEVER_S = 3.0  # what has not come by then, when other things have, does not come
LEASE_S = 10
LONG_S = 3600
IN_GROUP: dict[str, dict[str, str]] = {"NORMAL": {}, "FIFO": {"group": "one"}}
SPIN_MAX = 8  # deliveries of a message within some four minutes


def expected(count: int, prefix: str = "m") -> list[str]:
    return sorted(f"{prefix}-{number}" for number in range(count))


def said(messages: list[Json]) -> list[str]:
    return sorted(str(message["body"]) for message in messages)


def test_what_is_not_acknowledged_comes_again_and_nothing_else(plays: list[Play]) -> None:
    kept: dict[str, list[str]] = {}
    for play in plays:
        play.prepare()
        play.consume("simple")
        play.send(6, tag="TagC")
        first = play.receive(6, LEASE_S)
        assert said(first) == expected(6)
        assert {(one["attempt"], one["tag"], one["colour"], one["isCorrupted"]) for one in first} == {
            (1, "TagC", "blue", False)
        }
        play.settle("ack", first[:3])
        kept[play.topic] = said(first[3:])
    for play in plays:
        again = play.receive(3, LEASE_S)
        assert said(again) == kept[play.topic]
        assert {one["attempt"] for one in again} == {2}
        play.settle("ack", again)


def test_a_lease_may_be_made_shorter_or_longer(plays: list[Play]) -> None:
    for play in plays:
        play.prepare()
        play.consume("simple")
        play.send(2)
        sooner, later = play.receive(2, LONG_S)
        play.settle("change", [sooner], invisible_s=1)
        play.settle("change", [later], invisible_s=LONG_S)
        play.settle("ack", [later])  # with the handle that it has now
        (again,) = play.receive(1, LONG_S)
        assert again["body"] == sooner["body"]
        play.settle("ack", [again])


def test_a_listener_gets_each_message_once(plays: list[Play]) -> None:
    for play in plays:
        play.prepare()
        play.consume("subscribe")
        play.send(40)
    for play in plays:
        assert sorted(play.has_got("done", 40)) == expected(40)
    plays[0].driver.settle(NEVER_S)
    for play in plays:
        assert sorted(play.got("done")) == expected(40)


def test_a_group_that_is_new_gets_what_is_sent_after_it_began(plays: list[Play], server: servers.Server) -> None:
    for play in plays:
        create_topic(server, play.topic)
        play.consume("subscribe")
    plays[0].driver.settle(NEVER_S)  # nothing tells when a client's first call has reached the broker
    for play in plays:
        play.send(4)
    for play in plays:
        assert sorted(play.has_got("done", 4)) == expected(4)


def test_the_members_of_a_group_share_its_messages(
    every_sdk: None, sdks: Running, server: servers.Server, name: str
) -> None:
    """Clients in three languages, one group."""
    members = [Play(sdks.driver(grpcclients.sdk(sdk)), server, name) for sdk in SDKS]
    members[0].prepare()
    for member in members:
        member.consume("subscribe")

    def all_of_them() -> list[str]:
        return sorted(body for member in members for body in member.got("done"))

    number = 0
    while not all(member.got() for member in members):
        assert number < 60, [len(member.got()) for member in members]
        members[0].send(10, prefix=f"m{number}")
        number += 1
    wanted = sorted(f"m{which}-{each}" for which in range(number) for each in range(10))
    wait_until(all_of_them, lambda seen: len(seen) >= len(wanted))
    members[0].driver.settle(NEVER_S)
    assert all_of_them() == wanted


def test_a_failed_message_is_delivered_until_it_succeeds(plays: list[Play]) -> None:
    for play in plays:
        play.prepare()
        play.consume("subscribe", fail_times=2)
        play.send(3)
    for play in plays:
        assert sorted(play.has_got("done", 3)) == expected(3)
        assert sorted(play.got()) == sorted(expected(3) * 3)
        assert play.dead() == []


def test_a_message_that_always_fails_becomes_a_dead_letter(plays: list[Play]) -> None:
    for play in plays:
        play.prepare(retries=1)
        play.consume("subscribe", fail="always")
        play.send(2)
    for play in plays:
        assert wait_until(play.dead, lambda seen: len(seen) >= 2) == expected(2)
        play.driver.settle(1.0)
        assert sorted(play.got()) == sorted(expected(2) * 2), "as many attempts as its group allows"
        assert play.dead() == expected(2)


@pytest.mark.parametrize("wanted", [{"expression": "TagA || TagC"}, {"sql": "number < 2 AND TAGS <> 'TagB'"}])
def test_a_filter_selects(plays: list[Play], wanted: dict[str, str]) -> None:
    count = 2 if "sql" in wanted else 4
    for play in plays:
        play.prepare()
        play.consume("subscribe", **wanted)
        for tag in ("TagA", "TagB", "TagC"):
            play.send(4, prefix=tag, tag=tag)
    selected = sorted(f"{tag}-{number}" for tag in ("TagA", "TagC") for number in range(count))
    for play in plays:
        assert sorted(play.has_got("done", len(selected))) == selected
    plays[0].driver.settle(NEVER_S)
    assert [sorted(play.got()) for play in plays] == [selected] * 3


def test_a_consumer_has_several_topics(plays: list[Play], server: servers.Server) -> None:
    """Node's client does not see settings that come before it has all routes."""
    for play in plays:
        play.prepare()
        others = [f"{play.topic}{number}" for number in range(3)]
        for other in others:
            create_topic(server, other)
            grpcclients.begin_at_the_start(server, play.group, other)
        play.consume("subscribe", more_topics=others)
        for topic in (play.topic, *others):
            play.driver.call("send", topic=topic, count=2, prefix=topic)
    for play in plays:
        topics = [play.topic, *(f"{play.topic}{number}" for number in range(3))]
        assert sorted(play.has_got("done", 8)) == sorted(f"{topic}-{number}" for topic in topics for number in range(2))


def test_a_message_that_always_fails_does_not_spin(plays: list[Play]) -> None:
    """RocketMQ's delays begin with 1 s, 5 s, 10 s, 30 s; Node's client asks for none, 240 times a second."""
    for play in plays:
        play.prepare(delays_ms=())
        play.consume("subscribe", fail="always")
        play.send(1)
    for play in plays:
        play.has_got("failed", 2)
    plays[0].driver.settle(NEVER_S)
    assert max(len(play.got()) for play in plays) <= SPIN_MAX


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["NORMAL", "FIFO"])
def test_a_slow_listener_keeps_its_message(plays: list[Play], kind: str) -> None:
    """Longer than any lease that is not renewed: the proxy leases for 60 s."""
    for play in plays:
        play.prepare(kind, is_orderly=kind == "FIFO")
        play.consume("subscribe", slow_s=100)
        play.send(1, **IN_GROUP[kind])
    for play in plays:
        play.has_got("done", 1)
    plays[0].driver.settle(NEVER_S)
    assert [play.got() for play in plays] == [["m-0"]] * 3


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["NORMAL", "FIFO"])
def test_messages_of_a_consumer_that_died_come_to_another(
    plays: list[Play], proxy: proxies.Proxy, tmp_path: Path, kind: str
) -> None:
    for play, sdk in zip(plays, SDKS, strict=True):
        play.prepare(kind, is_orderly=kind == "FIFO")
        play.send(1, **IN_GROUP[kind])
        dying = Play(grpcclients.sdk(sdk).start(tmp_path / sdk, proxy.endpoints), play.server, play.topic)
        try:
            dying.consume("subscribe", slow_s=LONG_S)
            dying.has_got("message", 1)
        finally:
            dying.driver.kill()
            dying.driver.wait(5.0)
        play.consume("subscribe")
    for play in plays:
        assert play.has_got("done", 1) == ["m-0"]
