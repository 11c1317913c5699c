"""Who leads: one Lease, clocks that nobody compares, and what becomes of requests without an answer."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Any

import pytest

from gantry_operator.kube import KubeError, lease_path, path_of
from gantry_operator.leader import EVERY_S, LEASE_S, RENEW_WITHIN_S, Election, LeaseName, NotLeadingError
from testkit.simclock import SimClock

Document = dict[str, Any]
PLACE = LeaseName("system", "gantrymq")
PATH = lease_path(*PLACE)
SECOND = 1000
RELEASED = {"metadata": {"resourceVersion": "0"}, "spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}


class Server:
    """One Lease with a version, released at first.

    `faults` are taken by the writes in turn: lose (done, unanswered), drop, a status.
    """

    def __init__(self) -> None:
        self.lease: Document | None = copy.deepcopy(RELEASED)
        self.faults: list[str] = []
        self.away = False
        self.writes = 0

    async def get(self, path: str) -> Document | None:
        assert path == PATH
        self._answer()
        return copy.deepcopy(self.lease)

    async def create(self, document: Document) -> bool:
        assert path_of(document) == PATH
        return self._write(lambda: self.lease is None, document)

    async def merge(self, path: str, change: Document) -> None:
        version = change["metadata"]["resourceVersion"]
        held = self.lease
        if held is None:
            raise KubeError("PATCH", 404, "not found")
        merged = {"metadata": {}, "spec": held["spec"] | change["spec"]}
        if not self._write(lambda: version == held["metadata"]["resourceVersion"], merged):
            raise KubeError("PATCH", 409, "the object has been modified")

    def _write(self, may: Callable[[], bool], document: Document) -> bool:
        self._answer()
        fault = self.faults.pop(0) if self.faults else ""
        if fault.isdigit():
            raise KubeError("write", int(fault), "as the test wants it")
        done = fault != "drop" and may()
        if done:
            self.writes += 1
            self.lease = document | {"metadata": {"resourceVersion": str(self.writes)}}
        if fault:
            raise KubeError("write", 0, "no answer")
        return done

    def _answer(self) -> None:
        if self.away:
            raise KubeError("GET", 0, "no answer")

    @property
    def holder(self) -> str:
        return str(self.lease["spec"]["holderIdentity"]) if self.lease is not None else ""


class Play:
    """Two candidates with clocks of their own, of which no test sets one by the other."""

    def __init__(self) -> None:
        self.server = Server()
        self.clocks = {"a": SimClock(), "b": SimClock(now_ms=1)}
        self.elections = {who: Election(self.server, PLACE, who, self.clocks[who]) for who in "ab"}

    def pass_s(self, seconds: float) -> None:
        for clock in self.clocks.values():
            clock.advance(int(seconds * SECOND))

    def rounds(self, *names: str) -> None:
        for name in names:
            asyncio.run(self.elections[name].round())

    @property
    def leaders(self) -> str:
        return "".join(who for who, each in self.elections.items() if each.leads())


def test_one_that_takes_the_lease_leads_and_the_other_waits() -> None:
    play = Play()
    play.rounds("a", "b")
    assert play.leaders == "a" and play.elections["b"].holder == "a"


def test_a_leader_that_renews_leads_for_ever() -> None:
    play = Play()
    for _ in range(40):
        play.rounds("a", "b")
        play.pass_s(2)
    assert play.leaders == "a" and play.server.lease is not None
    assert play.server.lease["spec"]["leaseTransitions"] == 1


def test_a_lease_that_stands_still_is_taken_when_its_time_is_over_and_not_before() -> None:
    play = Play()
    play.rounds("a", "b")
    play.pass_s(LEASE_S - 1)
    play.rounds("b")
    assert play.leaders == ""
    play.pass_s(1)
    play.rounds("b")
    assert play.leaders == "b" and play.server.lease is not None
    assert play.server.lease["spec"]["leaseTransitions"] == 2


def test_a_leader_stops_before_anybody_may_follow_it() -> None:
    assert RENEW_WITHIN_S < LEASE_S
    play = Play()
    play.rounds("a", "b")
    play.server.away = True
    play.pass_s(RENEW_WITHIN_S - 1)
    play.rounds("a")
    assert play.leaders == "a"
    play.pass_s(1)
    assert play.leaders == ""


def test_renewals_are_counted_from_when_they_were_sent() -> None:
    play = Play()
    play.rounds("a")
    slow = play.server.get

    async def get(path: str) -> Document | None:
        play.pass_s(5)
        return await slow(path)

    play.server.get = get  # type: ignore[method-assign]
    play.rounds("a")
    play.pass_s(5)
    assert play.leaders == ""


def test_a_round_begins_when_it_is_time_and_not_after_a_slow_answer_and_a_rest() -> None:
    play = Play()
    leader, standby = play.elections["a"], play.elections["b"]
    play.rounds("a", "b")
    began_s = play.clocks["a"].monotonic()
    play.pass_s(EVERY_S / 2)
    assert leader.rest_s(began_s) == pytest.approx(EVERY_S / 2)
    play.pass_s(EVERY_S)
    assert 0 < leader.rest_s(began_s) < 0.1
    play.pass_s(LEASE_S - 1.5 * EVERY_S - 0.25)
    assert standby.rest_s(0) == pytest.approx(0.25), "nobody sleeps through the end of a Lease"


def test_a_clock_that_jumps_moves_nobody() -> None:
    play = Play()
    play.rounds("a", "b")
    play.clocks["b"].jump(3_600 * SECOND)
    play.clocks["a"].jump(-3_600 * SECOND)
    play.rounds("b", "a", "b")
    assert play.leaders == "a"


@pytest.mark.parametrize("fault", ["lose", "drop"])
def test_a_renewal_without_an_answer_is_known_a_round_later(fault: str) -> None:
    play = Play()
    play.rounds("a")
    play.server.faults.append(fault)
    play.pass_s(0.6 * RENEW_WITHIN_S)
    play.rounds("a", "a")
    play.pass_s(0.6 * RENEW_WITHIN_S)
    assert play.leaders == "a"


def test_a_lease_that_was_made_without_an_answer_is_ours() -> None:
    play = Play()
    play.server.lease = None
    play.rounds("a")
    play.pass_s(LEASE_S)
    play.server.faults.append("lose")
    play.rounds("a")
    assert play.leaders == ""
    play.rounds("a", "b")
    assert play.leaders == "a"


def test_of_two_that_take_it_at_once_one_leads() -> None:
    play = Play()
    play.rounds("a", "b")
    play.pass_s(LEASE_S)
    third = Election(play.server, PLACE, "c", play.clocks["b"])
    play.elections["c"] = third
    play.rounds("c")
    play.pass_s(LEASE_S)

    async def both() -> None:
        await asyncio.gather(play.elections["b"].round(), third.round())

    asyncio.run(both())
    assert play.leaders in ("b", "c") and play.server.holder == play.leaders


def test_a_lease_that_somebody_deleted_is_made_again_by_its_leader() -> None:
    play = Play()
    play.rounds("a", "b")
    play.server.lease = None
    play.rounds("a", "b")
    assert play.leaders == "a" and play.server.holder == "a"


# A former leader that cannot reach the API server leads on for RENEW_WITHIN_S; none of these says that it does not.
@pytest.mark.parametrize("left", [None, {"holderIdentity": ""}, {}, {"holderIdentity": "z", "leaseDurationSeconds": 9}])
@pytest.mark.parametrize("knew", [True, False])
def test_a_lease_that_is_deleted_or_replaced_is_not_taken_while_its_leader_may_lead(
    left: Document | None, knew: bool
) -> None:
    play = Play()
    play.rounds(*("ab" if knew else "a"))
    play.server.lease = None if left is None else {"metadata": {"resourceVersion": "x"}, "spec": left}
    for _ in range(LEASE_S):
        play.rounds("b")
        assert len(play.leaders) == (1 if play.elections["a"].leads() else 0)
        assert play.elections["b"].rest_s(play.clocks["b"].monotonic()) <= LEASE_S
        play.pass_s(1)
    play.rounds("b")
    assert play.leaders == "b" and play.server.holder == "b"


@pytest.mark.parametrize("reaches_the_server", [True, False])
def test_a_lease_that_is_seized_is_held_by_one_after_its_time(reaches_the_server: bool) -> None:
    play = Play()
    play.rounds("a")
    asyncio.run(play.elections["b"].seize())
    assert play.server.holder == "b"
    for _ in range(LEASE_S):
        play.rounds(*("ab" if reaches_the_server else "b"))
        assert play.leaders in (("b",) if reaches_the_server else ("ab", "b"))
        play.pass_s(1)
    play.rounds("b")
    assert play.leaders == "b"


def test_a_lease_that_changes_all_the_time_is_not_seized() -> None:
    play = Play()
    play.rounds("a")
    play.server.faults = ["409"] * 100
    with pytest.raises(KubeError, match="changes too often"):
        asyncio.run(play.elections["b"].seize())
    assert play.leaders == "a" and play.server.holder == "a"


def test_a_lease_that_somebody_else_took_is_lost_for_ever() -> None:
    play = Play()
    play.rounds("a", "b")
    play.pass_s(LEASE_S)
    play.rounds("b", "a")
    assert play.leaders == "b"
    play.server.lease = None
    play.rounds("b")
    asyncio.run(ends(play.elections["a"], "is b's"))


async def ends(election: Election, said: str) -> None:
    async with asyncio.timeout(60):
        assert said in await election.run()


def test_a_leader_that_wakes_up_late_ends_and_gets_no_token_before() -> None:
    play = Play()
    play.rounds("a", "b")
    token = play.elections["a"].token(lambda: "secret")
    assert token() == "secret"
    play.clocks["a"].advance(int(RENEW_WITHIN_S * SECOND))
    with pytest.raises(NotLeadingError):
        token()
    writes = play.server.writes
    asyncio.run(ends(play.elections["a"], "not renewed"))
    assert play.server.writes == writes


def test_a_standby_writes_nothing_and_gets_no_token() -> None:
    play = Play()
    play.rounds("a")
    writes = play.server.writes
    for _ in range(5):
        play.rounds("b")
        play.pass_s(LEASE_S / 6)
    assert play.server.writes == writes
    with pytest.raises(NotLeadingError):
        play.elections["b"].token(lambda: "secret")()


def test_a_lease_that_is_released_is_taken_at_once() -> None:
    play = Play()
    play.rounds("a", "b")
    asyncio.run(play.elections["a"].release())
    assert play.leaders == "" and play.server.holder == ""
    play.rounds("b")
    assert play.leaders == "b"


def test_nobody_releases_what_is_another_ones() -> None:
    play = Play()
    play.rounds("a", "b")
    asyncio.run(play.elections["b"].release())
    assert play.leaders == "a" and play.server.holder == "a"


@pytest.mark.parametrize("status", [403, 409, 500])
def test_an_api_server_that_refuses_has_answered(status: int) -> None:
    play = Play()
    play.server.faults.append(str(status))
    play.rounds("a")
    assert play.leaders == "" and play.elections["a"].unanswered_s == 0
    play.server.away = True
    play.pass_s(3)
    play.rounds("a")
    assert play.elections["a"].unanswered_s == 3
