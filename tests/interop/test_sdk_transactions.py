"""Transactions of RocketMQ 5's own producers, through the proxy; judged by checks and by what the broker stored.

The driver does what the message says: `execute` is how the local transaction ends, `answer` what the checker says.  A
test plays all clients side by side, a topic each, because most of it is waiting for checks.
"""

from pathlib import Path

import pytest

from interop import grpcclients, proxies, servers
from interop.clients import Running
from interop.grpcclients import SDKS, bodies, create_topic, insist, rows, stored, wait_until
from interop.processes import Driver, Json

CHECKS_S = 5.0  # two rounds of checks and a bit: what has not happened by then does not happen


class Transactor:
    """One client and its topic."""

    def __init__(self, driver: Driver, server: servers.Server, topic: str) -> None:
        self.driver, self.topic = driver, topic
        self._server = server
        create_topic(server, topic, "TRANSACTION")

    def transact(self, execute: str, answer: str = "unknown", count: int = 1, prefix: str = "") -> list[Json]:
        fields = {"topic": self.topic, "count": count, "prefix": prefix or execute, "answer": answer}
        return rows(self.driver.call("send", execute=execute, **fields))

    def checked(self) -> set[str]:
        """The bodies of the messages that this client was asked about since the last forget()."""
        self.driver.settle(0.1)
        asked = (one for one in self.driver.events if one["event"] == "checked" and one["topic"] == self.topic)
        return {str(event["body"]) for event in asked}

    def forget(self) -> None:
        self.driver.events.clear()

    def bodies(self) -> list[str]:
        return bodies(stored(self._server, self.topic))


@pytest.fixture
def plays(every_sdk: None, sdks: Running, server: servers.Server, name: str) -> list[Transactor]:
    return [Transactor(sdks.driver(grpcclients.sdk(sdk)), server, f"{name}{sdk}") for sdk in SDKS]


def settle(plays: list[Transactor]) -> None:
    for play, seconds in zip(plays, (CHECKS_S, 0.1, 0.1), strict=True):
        play.driver.settle(seconds)


def test_what_the_producer_ended_is_there_or_not_and_never_asked_about(
    plays: list[Transactor], server: servers.Server
) -> None:
    for play in plays:
        committed = play.transact("commit", "rollback", 3)
        play.transact("rollback", "commit", 3)
        found = wait_until(lambda play=play: stored(server, play.topic), lambda seen: len(seen) >= 3)
        assert {one.properties["UNIQ_KEY"] for one in found} == {one["messageId"] for one in committed}
    settle(plays)
    for play in plays:
        assert play.bodies() == ["commit-0", "commit-1", "commit-2"], play.topic
        assert play.checked() == set(), play.topic


def test_an_unknown_outcome_is_asked_for_and_what_is_answered_counts(plays: list[Transactor]) -> None:
    for play in plays:
        play.transact("unknown", "commit", 2, prefix="yes")
        play.transact("unknown", "rollback", 2, prefix="no")
    for play in plays:
        wait_until(play.checked, lambda seen: seen >= {"yes-0", "yes-1", "no-0", "no-1"})
        wait_until(play.bodies, lambda seen: len(seen) >= 2)
        play.driver.settle(0.5)  # for the last answers on their way
        play.forget()
    settle(plays)
    for play in plays:
        assert play.checked() == set(), f"{play.topic}: they were settled, and are asked about again"
        assert play.bodies() == ["yes-0", "yes-1"], play.topic


def test_what_stays_unknown_is_asked_for_again(plays: list[Transactor]) -> None:
    for play in plays:
        play.transact("unknown", "unknown")
    for _ in range(2):
        for play in plays:
            wait_until(play.checked, bool)
        for play in plays:
            play.forget()
    assert [play.bodies() for play in plays] == [[], [], []]


def test_another_producer_answers_for_one_that_died_after_the_half(
    plays: list[Transactor], proxy: proxies.Proxy, tmp_path: Path
) -> None:
    for play, sdk in zip(plays, SDKS, strict=True):
        dying = grpcclients.sdk(sdk).start(tmp_path / sdk, proxy.endpoints)
        try:
            dying.begin("send", topic=play.topic, count=1, prefix="orphan", execute="halt", answer="commit")
            dying.event("executed")
            assert dying.process.wait(60.0) == 1
        finally:
            dying.kill()
            dying.wait(5.0)
    for play in plays:
        assert play.bodies() == []
        play.driver.call("open", topic=play.topic)
    for play in plays:
        assert wait_until(play.bodies, bool) == ["orphan-0"]
        assert play.checked() == {"orphan-0"}


def test_a_client_in_another_language_answers_for_a_producer_that_left(plays: list[Transactor]) -> None:
    for play in plays:
        play.transact("unknown", "commit", prefix="left")
        play.driver.call("end")
    others = [*plays[1:], plays[0]]
    for play, other in zip(plays, others, strict=True):
        other.driver.call("open", topic=play.topic)
    for play in plays:
        assert wait_until(play.bodies, bool) == ["left-0"]


def test_a_proxy_that_was_killed_passes_on_checks_and_ends(
    restarts: None, plays: list[Transactor], proxy: proxies.Proxy
) -> None:
    """Python's client opens its stream again only after five minutes: another producer of the topic is asked."""
    for play in plays:
        play.transact("unknown", "commit")
    proxy.kill()
    proxy.start()
    for play in plays:
        play.driver.call("end")
        insist(lambda play=play: play.driver.call("open", topic=play.topic))
    for play in plays:
        assert wait_until(play.bodies, bool) == ["unknown-0"]
