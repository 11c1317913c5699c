"""Plays of batches: halves of a sink on a real store, decided, ended, cut off in the middle, carried on."""

from __future__ import annotations

import random

import pytest

from gantry.client.outgoing import Outgoing
from gantry.client.requests import questions
from gantry.client.requests.questions import is_in_doubt
from gantry.client.requests.transaction_requests import prepare
from gantry.errors import OutcomeUnknownError
from gantry.leaves.frames import Command
from gantry.model.route import MessageQueue
from gantry.store.settings import Flush
from gantry.transaction import batchends
from gantry.transaction.checker import CheckPolicy
from gantry.wire import bodies
from gantry.wire.codes import ResponseCode
from testkit.transactionplay import ROLLBACK, Half, TransactionPlay

_S = 1000
_INTERVAL = 30 * _S
_DAYS = 24 * 3600 * _S


def halves(play: TransactionPlay, part: str, count: int, batch: int = 1, home: str = "b") -> list[Half]:
    """What one part of batch 1 of sink s wrote."""
    pairs = {"SPARK_TXN": f"s/{batch}/{part}/{home}"}
    names = [f"{part}-{number}" for number in range(count)]
    return [play.half(name.encode(), f"{batch}-{name}", **pairs) for name in names]


def said(answer: Command) -> dict[str, object]:
    assert answer.code == 0, answer.remark
    return bodies.loads_object(answer.body)


def keys(play: TransactionPlay) -> list[str]:
    return sorted(key for _, key in play.visible())


def expected(part: str, count: int, batch: int = 1) -> list[str]:
    return [f"{batch}-{part}-{number}" for number in range(count)]


def test_a_committed_batch_is_delivered_once_and_its_other_tries_never() -> None:
    play = TransactionPlay()
    halves(play, "a", 3)
    halves(play, "b", 2)
    halves(play, "loser", 4)
    assert play.run_pass(_INTERVAL) == [] and keys(play) == []
    decided = said(play.decide("s", 1, "commit", ["a", "b"]))
    assert decided == {"batch": 1, "done": False, "parts": ["a", "b"], "groups": []}
    assert said(play.end_batch("s", 1, parts=["a", "b"])) == {"settled": 9, "left": 0}
    delivered = expected("a", 3) + expected("b", 2)
    assert keys(play) == delivered
    assert said(play.end_batch("s", 1, parts=["a", "b"])) == {"settled": 0, "left": 0}, "again, by the next start"
    assert said(play.decide("s", 1, "done"))["done"] is True
    halves(play, "late", 2)
    play.run_pass(_INTERVAL)
    play.flush()
    assert not play.book.open, "what comes late of a decided batch is a loser"
    assert keys(play) == delivered


def test_the_second_of_two_drivers_is_told_what_the_first_decided() -> None:
    play = TransactionPlay()
    halves(play, "first", 2)
    halves(play, "second", 2)
    said(play.decide("s", 1, "commit", ["first"]))
    assert said(play.decide("s", 1, "commit", ["second"]))["parts"] == ["first"]
    said(play.end_batch("s", 1, parts=["first"]))
    assert keys(play) == expected("first", 2)


def test_nothing_is_decided_by_who_is_not_the_home_nor_while_writes_are_refused() -> None:
    play = TransactionPlay()
    elsewhere = play.decide("s", 1, "commit", ["a"], home="other")
    assert elsewhere.code == ResponseCode.INVALID_PARAMETER and "other" in str(elsewhere.remark)
    play.is_kept = False
    assert play.decide("s", 1, "commit", ["a"]).code == ResponseCode.SYSTEM_ERROR
    halves(play, "a", 1)
    play.run_pass(_INTERVAL)
    assert keys(play) == [], "a decision that its copies may lack moves nothing"
    play.is_kept = True
    assert said(play.decide("s", 1, "commit", ["b"]))["parts"] == ["a"], "asked again it is the same"
    play.run_pass(_INTERVAL)
    play.flush()
    assert keys(play) == expected("a", 1)


def test_an_end_without_a_decision_at_the_home_is_refused_and_ends_nothing() -> None:
    play = TransactionPlay()
    halves(play, "a", 2)
    assert play.end_batch("s", 1, parts=["a"]).code == ResponseCode.TRANSACTION_STATE_UNKNOW
    assert said(play.end_batch("s", 1)) == {"settled": 0, "left": 0}
    assert keys(play) == [] and len(play.book.open) == 2


def test_another_group_learns_the_decision_with_the_end_and_keeps_it() -> None:
    play = TransactionPlay()
    halves(play, "a", 2, home="elsewhere")
    halves(play, "loser", 2, home="elsewhere")
    assert play.run_pass(_INTERVAL) == [] and len(play.book.open) == 4
    assert said(play.end_batch("s", 1, "elsewhere", parts=["a"]))["left"] == 0
    assert keys(play) == expected("a", 2) and not play.book.open
    halves(play, "late", 1, home="elsewhere")
    play.run_pass(_INTERVAL)
    play.flush()
    assert not play.book.open and keys(play) == expected("a", 2)
    halves(play, "x", 1, batch=2, home="elsewhere")
    assert said(play.end_batch("s", 2, "elsewhere", aborted=["x"]))["left"] == 0
    assert not play.book.open and keys(play) == expected("a", 2)


def test_an_end_is_bounded_and_goes_on_where_it_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batchends, "PER_CALL", 100)
    play = TransactionPlay()
    halves(play, "a", 250)
    said(play.decide("s", 1, "commit", ["a"]))
    answers = [said(play.end_batch("s", 1, parts=["a"])) for _ in range(3)]
    assert [(answer["settled"], answer["left"]) for answer in answers] == [(100, 150), (100, 50), (50, 0)]
    assert keys(play) == sorted(expected("a", 250))


def test_a_kill_in_the_middle_of_an_end_repeats_nothing_and_forgets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batchends, "PER_CALL", 7)
    play = TransactionPlay()
    halves(play, "a", 20)
    halves(play, "b", 5)
    said(play.decide("s", 1, "commit", ["a"]))
    said(play.end_batch("s", 1, parts=["a"]))
    play.kill()
    halves(play, "second", 3)
    assert said(play.decide("s", 1, "commit", ["second"]))["parts"] == ["a"]
    while said(play.end_batch("s", 1, parts=["a"]))["left"]:
        pass
    assert keys(play) == sorted(expected("a", 20)) and not play.book.open


@pytest.mark.parametrize("home", ["b", "elsewhere"])
@pytest.mark.parametrize("per_call", [3, 1000])
def test_an_end_right_after_a_start_ends_what_was_decided_before_it(
    home: str, per_call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batchends, "PER_CALL", per_call)
    play = TransactionPlay()
    halves(play, "a", 10, home=home)
    halves(play, "loser", 2, home=home)
    if home == "b":
        said(play.decide("s", 1, "commit", ["a"]))
    elif per_call == 3:
        said(play.end_batch("s", 1, home, parts=["a"]))
    play.kill()
    assert any(said(play.end_batch("s", 1, home, parts=["a"]))["left"] == 0 for _ in range(20))
    if home == "b":
        said(play.decide("s", 1, "done"))
    assert keys(play) == expected("a", 10) and not play.book.open


def test_an_end_that_cannot_know_whether_the_decision_is_kept_says_so_and_is_asked_again() -> None:
    play = TransactionPlay()
    halves(play, "a", 5)
    said(play.decide("s", 1, "commit", ["a"]))
    play.kill()
    play.is_kept = False
    assert play.end_batch("s", 1, parts=["a"]).code == ResponseCode.SYSTEM_ERROR
    assert play.decide("s", 1, "done").code == ResponseCode.SYSTEM_ERROR
    play.is_kept = True
    assert said(play.end_batch("s", 1, parts=["a"])) == {"settled": 5, "left": 0}
    assert keys(play) == expected("a", 5)


def test_what_waits_for_its_copies_is_left() -> None:
    play = TransactionPlay()
    halves(play, "a", 5)
    halves(play, "of another", 4, batch=2)
    said(play.decide("s", 1, "commit", ["a"]))
    play.kill()
    assert play.ended("s") == batchends.SettleResult(settled=0, left=5)


def test_a_batch_with_open_halves_is_not_done_no_matter_who_says_so() -> None:
    play = TransactionPlay()
    halves(play, "a", 5)
    halves(play, "loser", 5)
    said(play.decide("s", 1, "commit", ["a"]))
    early = play.decide("s", 1, "done")
    assert early.code == ResponseCode.SYSTEM_ERROR and "5 halves of batch 1 of sink s are open" in str(early.remark)
    play.run_pass(_INTERVAL)
    play.flush()
    assert keys(play) == expected("a", 5)
    assert said(play.decide("s", 1, "done"))["done"] is True


def test_the_broker_itself_ends_what_a_sink_did_not_live_to_end() -> None:
    play = TransactionPlay()
    halves(play, "a", 70)
    halves(play, "b", 3)
    said(play.decide("s", 1, "commit", ["a"]))
    play.kill()
    play.run_pass(_INTERVAL)
    assert keys(play) == [], "a start does not know yet whether the copies have it"
    play.batches.tick()
    play.run_pass(_INTERVAL)
    play.flush()
    assert keys(play) == sorted(expected("a", 70)) and not play.book.open


def test_four_idle_days_give_nothing_up_and_ask_nobody() -> None:
    play = TransactionPlay()
    play.join()
    halves(play, "a", 3)
    for _ in range(4 * 24):
        assert play.run_pass(_DAYS // 24) == []
    assert play.service.counts.given_up == 0 and len(play.book.open) == 3
    assert play.batches.undecided()[0] == 3
    said(play.decide("s", 1, "commit", ["a"]))
    said(play.end_batch("s", 1, parts=["a"]))
    assert keys(play) == expected("a", 3) and play.batches.undecided() == (0, 0)


def test_a_half_of_a_batch_is_put_back_once_an_immunity_time_and_stays_what_it_is() -> None:
    play = TransactionPlay(rules=CheckPolicy(settled_behind_max=2, settled_behind_factor=0))
    play.half(b"p", "p", SPARK_TXN="s/1/a/b", CHECK_IMMUNITY_TIME_IN_SECONDS="3600")
    moves = []
    for _ in range(6):
        for _ in range(5):
            play.end(play.half(), ROLLBACK)
        play.clock.advance(1200 * _S)
        play.tick()
        moves.append(play.service.counts.put_back)
    assert moves == [0, 0, 0, 1, 1, 1], "rests for an hour after it was stored, and after each time"
    said(play.decide("s", 1, "commit", ["a"]))
    assert said(play.end_batch("s", 1, parts=["a"])) == {"settled": 1, "left": 0}
    assert keys(play) == ["p"]


def test_a_commit_that_is_refused_for_an_earlier_batch_tells_it_only_when_it_is_kept() -> None:
    play = TransactionPlay()
    play.is_kept = False
    assert play.decide("s", 1, "commit", ["a"]).code == ResponseCode.SYSTEM_ERROR
    assert play.decide("s", 2, "commit", ["b"]).code == ResponseCode.SYSTEM_ERROR, "another master may decide otherwise"
    play.is_kept = True
    told = play.decide("s", 2, "commit", ["b"])
    assert told.code == ResponseCode.TRANSACTION_SHOULD_COMMIT
    assert bodies.loads_object(told.body)["parts"] == ["a"]


def test_what_a_sealed_master_had_stored_is_in_doubt_for_our_clients() -> None:
    play = TransactionPlay(Flush.SYNC)
    play.half(b"row", "row-1", SPARK_TXN="s/1/a/b")
    play.acks.seal()
    (answer,) = play.connection.take()
    assert answer.code == ResponseCode.SYSTEM_BUSY and is_in_doubt(answer)
    queue = MessageQueue("orders", "b", 0)
    outgoing = Outgoing("orders", b"row", b"", ("row-1",), 0)
    for question in (questions.send("g", outgoing, queue), prepare("g", outgoing, queue)):
        with pytest.raises(OutcomeUnknownError, match="another master may lead by now"):
            question.read(answer)


def test_a_sink_that_is_named_is_listed_with_all_its_parts() -> None:
    play = TransactionPlay()
    for number in range(1100):
        play.half(b"x", f"{number}", SPARK_TXN=f"s/1/{number}-try/b")
    assert [len(play.listed(sink)) for sink in ("", "s", "other")] == [1000, 1100, 0]


def test_what_does_not_say_to_which_batch_it_belongs_is_refused() -> None:
    play = TransactionPlay()
    assert play.half(SPARK_TXN="s/1/a").code == ResponseCode.MESSAGE_ILLEGAL
    assert not play.book.open


@pytest.mark.parametrize("seed", range(8))
def test_power_cuts_at_any_moment_leave_every_batch_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batchends, "PER_CALL", 30)
    play, chance = TransactionPlay(Flush.SYNC), random.Random(seed)
    truth: list[str] = []
    for batch in range(1, 6):
        tries = 0
        decided: list[str] = []
        while not decided or said(play.decide("s", batch, "ask"))["done"] is not True:
            tries += 1
            part = f"p{tries}"
            written = halves(play, part, chance.randint(1, 12), batch)
            play.flush()
            if chance.random() < 0.3:
                play.crash(chance)
                continue
            named = said(play.decide("s", batch, "commit", [part]))["parts"]
            if not decided:
                decided = [str(name) for name in named]  # type: ignore[attr-defined]
                truth += [half.key for half in written]
            assert named == decided
            while True:
                if chance.random() < 0.3:
                    play.crash(chance)
                    if chance.random() < 0.5:
                        break
                    continue  # a driver that lives on ends, as it was told before the cut
                if not said(play.end_batch("s", batch, parts=decided))["left"]:
                    said(play.decide("s", batch, "done"))
                    break
    play.run_pass(_INTERVAL)
    play.flush()
    assert keys(play) == sorted(truth) and not play.book.open
