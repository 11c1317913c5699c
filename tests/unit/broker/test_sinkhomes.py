"""A group asks the homes of sinks about halves that nobody ended here, and guesses nothing."""

from __future__ import annotations

import asyncio
import logging

import pytest

from gantry.broker import sinkhomes
from gantry.broker.complaints import Complaints
from gantry.broker.settings.config import BrokerConfig
from gantry.broker.sinkhomes import SinkHomes
from gantry.errors import OutcomeUnknownError, UnreachableError
from gantry.leaves.frames import Command
from gantry.transaction import batchends
from gantry.wire import bodies
from gantry.wire.codes import RequestCode
from gantry.wire.command import reply
from testkit.transactionplay import TransactionPlay

_INTERVAL = 30_000


class Others:
    """Name server `ns:1` and the masters of other groups; what a home says of a sink is in `said`."""

    def __init__(self) -> None:
        self.groups = {"home": "10.0.0.2:10911"}
        self.said: dict[str, dict[str, object]] = {}
        self.asked: list[str] = []
        self.brokers: dict[str, TransactionPlay] = {}  # by address, those that are more than an answer
        self.silent: set[str] = set()
        self.is_away = False

    async def invoke(self, address: str, command: Command, timeout_s: float) -> Command:
        if self.is_away:
            raise UnreachableError(f"{address}: away")
        if command.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            table = {
                name: {"cluster": "c", "brokerName": name, "brokerAddrs": {"0": place}}
                for name, place in self.groups.items()
            }
            return reply(command, body=bodies.dumps({"brokerAddrTable": table, "clusterAddrTable": {}}))
        if command.code == RequestCode.END_BATCH:
            self.asked.append(command.ext["sinkId"])
            if address not in self.brokers:
                raise UnreachableError(f"{address}: silent")
            broker = self.brokers[address]
            return await broker._turned(broker.batches.end(broker.connection, command))  # type: ignore[arg-type]
        assert command.code == RequestCode.DECIDE_BATCH and command.ext["action"] == "ask"
        sink = command.ext["sinkId"]
        self.asked.append(sink)
        if address in self.silent:
            raise OutcomeUnknownError(f"{address}: no answer in time")
        if sink not in self.said:
            return reply(command, 1, "not now")
        return reply(command, body=bodies.dumps(self.said[sink]))


class Play:
    def __init__(self) -> None:
        self.broker = TransactionPlay()
        self.others = Others()
        config = BrokerConfig(name="b", name_servers=("ns:1",))
        complaints = Complaints(logging.getLogger("test"), self.broker.clock)
        decisions = self.broker.batches.decisions
        self.homes = SinkHomes(config, self.others, self.broker.clock, self.broker.book, decisions, complaints)

    def halves(self, sink: str, part: str, count: int = 2, home: str = "home", batch: int = 1) -> None:
        for number in range(count):
            self.broker.half(b"row", f"{sink}-{batch}-{part}-{number}", SPARK_TXN=f"{sink}/{batch}/{part}/{home}")

    def round(self, after_ms: int = _INTERVAL) -> list[str]:
        """Time passes, the homes are asked, and a pass of the checks follows; who was asked about."""
        self.broker.clock.advance(after_ms)
        asyncio.run(self.homes.ask_all())
        self.broker.run_pass()
        self.broker.flush()
        asked, self.others.asked = self.others.asked, []
        return asked

    def keys(self) -> list[str]:
        return sorted(key for _, key in self.broker.visible())


def decided(batch: int, *parts: str, is_done: bool = False) -> dict[str, object]:
    return {"batch": batch, "parts": list(parts), "groups": ["b"], "done": is_done}


def test_halves_that_missed_their_end_become_what_their_home_decided() -> None:
    play = Play()
    play.halves("s", "a")
    play.halves("s", "loser")
    play.others.said["s"] = decided(1, "a")
    assert play.round(_INTERVAL - 1) == [], "a batch that is being written is not asked about"
    assert play.round() == ["s"]
    assert play.keys() == ["s-1-a-0", "s-1-a-1"] and not play.broker.book.open
    assert play.round() == []


def test_while_the_home_has_decided_nothing_everything_waits() -> None:
    play = Play()
    play.halves("s", "a")
    play.others.said["s"] = {"batch": -1, "done": True, "parts": [], "groups": []}
    assert play.round() == ["s"] and play.round() == ["s"]
    assert play.keys() == [] and len(play.broker.book.open) == 2
    play.others.said["s"] = decided(0, is_done=True)
    play.round()
    assert len(play.broker.book.open) == 2, "the batch before is no word about this one"


def test_a_batch_that_is_done_rolls_back_what_is_left_of_it() -> None:
    play = Play()
    play.halves("s", "late")
    play.others.said["s"] = decided(3, is_done=True)
    play.round()
    assert play.keys() == [] and not play.broker.book.open


def test_a_home_that_is_away_or_says_no_is_asked_again() -> None:
    play = Play()
    play.halves("s", "a")
    assert play.round() == ["s"], "it says no"
    play.others.is_away = True
    assert play.round() == []
    play.others.is_away, groups = False, play.others.groups
    play.others.groups = {}
    assert play.round() == [], "it has no master"
    play.others.groups, play.others.said["s"] = groups, decided(1, "a")
    assert play.round() == ["s"] and len(play.keys()) == 2


def test_the_own_group_s_sinks_are_not_asked_about() -> None:
    play = Play()
    play.halves("s", "a", home="b")
    assert play.round() == []


def test_a_round_is_bounded_and_the_next_goes_on_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinkhomes, "SINKS_A_ROUND", 3)
    play = Play()
    for number in range(5):
        play.halves(f"s{number}", "a", 1)
        play.others.said[f"s{number}"] = {"batch": -1, "done": True, "parts": [], "groups": []}
    assert play.round() == ["s0", "s1", "s2"]
    assert play.round() == ["s3", "s4", "s0"]
    assert play.round() == ["s1", "s2", "s3"]


class Abandoned(Play):
    """A batch of a sink that writes no other, decided at home and in another group, whose driver died before END."""

    def __init__(self) -> None:
        super().__init__()
        self.far = self.others.brokers["10.0.0.2:10911"] = TransactionPlay(group="home")
        for broker in (self.broker, self.far):
            for part in ("won", "lost"):
                broker.half(b"row", f"{broker.group}-{part}", SPARK_TXN=f"p/0/{part}/b")
        ended = {"sinkId": "p", "batchId": "0", "home": "b", "passing": "true", "reserve": "true"}
        assert self.far.serve(Command(RequestCode.END_BATCH, ext=ended, body=b"{}")).code == 0
        body = bodies.dumps({"parts": ["won"], "groups": ["b", "home"]})
        decided = {"sinkId": "p", "batchId": "0", "home": "b", "passing": "true", "action": "commit"}
        assert self.broker.serve(Command(RequestCode.DECIDE_BATCH, ext=decided, body=body)).code == 0
        self.round(_INTERVAL)

    def see_through(self, after_ms: int = 0) -> bool:
        """A round of that; whether the batch is done."""
        self.broker.clock.advance(after_ms)
        asyncio.run(self.homes.see_through())
        known = self.broker.batches.decisions.find("p")
        return known is not None and known.is_done


def test_a_batch_that_nobody_comes_back_for_is_seen_through_by_its_home_an_hour_later() -> None:
    play = Abandoned()
    assert not play.see_through(sinkhomes.ABANDONED_MS - _INTERVAL - 1), "its driver may be at work"
    assert play.far.visible() == []
    assert play.see_through(1)
    assert play.keys() == ["b-won"] and [key for _, key in play.far.visible()] == ["home-won"]
    assert not play.broker.book.open and not play.far.book.open
    known = play.far.batches.decisions.find("p")
    assert known is not None and known.is_done, "the names of its parts are kept nowhere"


def test_it_is_not_done_while_a_group_of_it_is_away_or_has_something_left(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Abandoned()
    groups, play.others.groups = play.others.groups, {}
    assert not play.see_through(sinkhomes.ABANDONED_MS)
    play.others.groups, play.far.is_kept = groups, False
    assert not play.see_through() and play.far.visible() == []
    play.far.is_kept = True
    monkeypatch.setattr(batchends, "PER_CALL", 1)
    assert not play.see_through(), "it ends some at a time"
    play.broker.half(b"row", "late", SPARK_TXN="p/0/late/b")
    assert not play.see_through(), "what is open here ends first"
    play.broker.run_pass()
    play.broker.flush()
    assert play.see_through() and play.keys() == ["b-won"]


def test_a_home_that_does_not_answer_delays_no_other_sink() -> None:
    play = Play()
    play.others.groups["other"] = "10.0.0.3:10911"
    for sink in ("s1", "s2", "s3"):
        play.halves(sink, "a")
    play.halves("s4", "a", home="other")
    play.others.silent = {"10.0.0.2:10911"}
    play.others.said["s4"] = decided(1, "a")
    assert play.round() == ["s1", "s4"] and len(play.keys()) == 2
    play.others.silent = set()
    assert play.round() == ["s1", "s2", "s3"]


def test_a_group_that_does_not_answer_is_waited_for_once_a_round() -> None:
    play = Play()
    for number in range(5):
        decided = {"sinkId": f"p{number}", "batchId": "0", "home": "b", "passing": "true", "action": "commit"}
        assert play.broker.serve(Command(RequestCode.DECIDE_BATCH, ext=decided, body=b'{"parts": ["a"]}')).code == 0
    play.broker.clock.advance(sinkhomes.ABANDONED_MS)
    asyncio.run(play.homes.see_through())
    assert play.others.asked == ["p0"] and len(play.homes.abandoned()) == 5
