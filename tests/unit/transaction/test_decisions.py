"""One decision for each batch: who is first wins, what was aborted stays so, and the table stays small."""

from __future__ import annotations

import pytest

from gantry.errors import StoreError
from gantry.transaction import decisions as module
from gantry.transaction import sinks as rows
from gantry.transaction.batches import BatchKey
from gantry.transaction.decisions import Decisions
from gantry.transaction.oplog import TransactionState
from gantry.transaction.sinks import Batch
from gantry.wire.codes import ResponseCode
from testkit.memory_state import MemoryState

HOME = "broker-a"
DAY_MS = 24 * 3_600_000


def made(state: MemoryState | None = None) -> Decisions:
    return Decisions(state or MemoryState(), HOME)


def batch(number: int, sink: str = "s", is_passing: bool = False) -> Batch:
    return Batch(sink, number, HOME, is_passing)


def key(number: int, part: str, sink: str = "s") -> BatchKey:
    return BatchKey(sink, number, part, HOME)


def confirmed(decisions: Decisions) -> Decisions:
    decisions.confirm(decisions.number)
    return decisions


def code(refused: object) -> int:
    return getattr(refused, "code", 0)


def test_the_first_commit_wins_and_is_told_to_everybody_after_it() -> None:
    decisions = made()
    assert decisions.commit(batch(1), ["a", "b"], 0) is None
    assert decisions.commit(batch(1), ["c"], 0) is None
    known = decisions.find("s")
    assert known is not None and known.parts == {"a", "b"}
    confirmed(decisions)
    verdicts = [decisions.verdict(key(1, part)) for part in "abc"]
    assert verdicts == [TransactionState.COMMITTED, TransactionState.COMMITTED, TransactionState.ROLLED_BACK]
    assert decisions.verdict(key(0, "old")) is TransactionState.ROLLED_BACK
    assert decisions.verdict(key(2, "a")) is TransactionState.OPEN
    assert decisions.verdict(key(1, "a", "other")) is TransactionState.OPEN


def test_another_owner_s_batch_of_the_same_number_is_refused_and_the_own_one_told_again() -> None:
    decisions = made()
    mine, other = Batch("s", 1, HOME, owner="query-a"), Batch("s", 1, HOME, owner="query-b")
    assert decisions.commit(mine, ["a"], 0) is None
    for stranger in (other, other._replace(owner="query-c")):
        refused = decisions.commit(stranger, ["b"], 0)
        assert code(refused) == ResponseCode.TRANSACTION_SHOULD_ROLLBACK and "query-a" in str(refused)
    assert decisions.commit(mine, ["c"], 0) is None and decisions.commit(batch(1), ["c"], 0) is None
    decisions.done(mine)
    followed = made()
    followed.follow("s", decisions.value("s"))
    assert code(followed.commit(other, [], 0)) == ResponseCode.TRANSACTION_SHOULD_ROLLBACK, "on the next master too"
    assert decisions.commit(other._replace(number=2), ["b"], 0) is None, "who goes on has the sink"
    assert code(decisions.commit(mine._replace(number=2), ["a"], 0)) == ResponseCode.TRANSACTION_SHOULD_ROLLBACK
    assert code(decisions.commit(Batch("s", 3, HOME, owner="a b"), ["a"], 0)) == ResponseCode.INVALID_PARAMETER


def test_groups_of_batches_count_among_the_names_until_they_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NAMES_MAX", 5)
    decisions = made()
    assert decisions.commit(batch(1), ["a"], 0, ["g1", "g2", "g3"]) is None
    assert code(decisions.commit(batch(1, "other"), ["a"], 0, ["g1"])) == ResponseCode.SYSTEM_BUSY
    decisions.done(batch(1))
    assert decisions.commit(batch(1, "other"), ["a"], 0, ["g1"]) is None


def test_an_aborted_part_is_never_committed_and_the_batch_stays_open_to_others() -> None:
    decisions = made()
    assert decisions.abort(batch(1), ["a", "b"], 0) is None
    assert code(decisions.commit(batch(1), ["b", "c"], 0)) == ResponseCode.TRANSACTION_SHOULD_ROLLBACK
    confirmed(decisions)
    assert decisions.verdict(key(1, "a")) is TransactionState.ROLLED_BACK
    assert decisions.verdict(key(1, "c")) is TransactionState.OPEN
    assert decisions.commit(batch(1), ["c"], 0) is None
    assert decisions.abort(batch(1), ["c"], 0) is None, "decided before: no word about it"
    assert decisions.verdict(key(1, "c")) is TransactionState.OPEN, "not confirmed yet"
    assert confirmed(decisions).verdict(key(1, "c")) is TransactionState.COMMITTED


def test_what_only_this_process_knows_is_not_acted_upon() -> None:
    state = MemoryState()
    decisions = made(state)
    decisions.commit(batch(1), ["a"], 0)
    assert decisions.verdict(key(1, "a")) is TransactionState.OPEN and not decisions.is_confirmed
    decisions.file.save_if_changed()
    again = made(state)
    assert again.verdict(key(1, "a")) is TransactionState.OPEN, "a start asks the copies as well"
    assert confirmed(again).verdict(key(1, "a")) is TransactionState.COMMITTED


def test_a_batch_is_decided_when_the_one_before_it_is_done_and_never_behind_it() -> None:
    decisions = made()
    decisions.commit(batch(3), ["a"], 0)
    assert code(decisions.commit(batch(4), ["b"], 0)) == ResponseCode.TRANSACTION_SHOULD_COMMIT
    decisions.done(batch(2))
    assert code(decisions.commit(batch(4), ["b"], 0)) == ResponseCode.TRANSACTION_SHOULD_COMMIT
    decisions.done(batch(3))
    assert decisions.commit(batch(4), ["b"], 0) is None
    assert code(decisions.commit(batch(3), ["c"], 0)) == ResponseCode.TRANSACTION_SHOULD_ROLLBACK
    known = decisions.find("s")
    assert known is not None and (known.batch, known.parts) == (4, {"b"})


def test_a_done_batch_needs_no_names_and_what_is_left_of_it_is_rolled_back() -> None:
    decisions = made()
    decisions.commit(batch(1), ["a"], 0)
    decisions.done(batch(1))
    assert decisions.commit(batch(1), ["b"], 0) is None
    known = decisions.find("s")
    assert known is not None and known.is_done and known.parts is None
    assert confirmed(decisions).verdict(key(1, "late")) is TransactionState.ROLLED_BACK


def test_a_learned_decision_counts_at_once_and_a_contradiction_is_refused() -> None:
    decisions = made()
    assert decisions.learn(batch(1), ["a"], 0) is None
    assert decisions.verdict(key(1, "a")) is TransactionState.COMMITTED
    assert code(decisions.learn(batch(1), ["b"], 0)) == ResponseCode.TRANSACTION_SHOULD_ROLLBACK
    assert decisions.learn(batch(0), ["z"], 0) is None, "older news"
    assert decisions.learn(batch(2), None, 0) is None, "done already when it is heard"
    assert decisions.verdict(key(2, "loser")) is TransactionState.ROLLED_BACK
    assert decisions.abort(batch(3), ["x"], 0, is_learned=True) is None
    assert decisions.verdict(key(3, "x")) is TransactionState.ROLLED_BACK


def test_a_slave_that_follows_change_by_change_has_the_same_table() -> None:
    master, slave = made(), made()
    master.touched = set()
    master.commit(batch(1), ["a", "b"], 5)
    master.abort(batch(9, "t"), ["x"], 6)
    master.commit(batch(0, "u", is_passing=True), [], 7)
    master.done(batch(0, "u"))
    for name in sorted(master.touched):
        slave.follow(name, master.value(name))
    assert {name: slave.value(name) for name in slave.keys()} == {name: master.value(name) for name in master.keys()}  # noqa: SIM118
    slave.follow("s", None)
    assert slave.keys() == ["t", "u"]
    with pytest.raises(ValueError, match="sink s"):
        slave.follow("s", [1])


def test_the_file_says_it_all_again_and_a_damaged_one_stops_the_start() -> None:
    state = MemoryState()
    decisions = made(state)
    decisions.abort(batch(2), ["x"], 3)
    decisions.commit(batch(1, "t"), ["a"], 4)
    decisions.file.save_if_changed()
    decisions.file.save_if_changed()
    assert state.saves == 1
    again = made(state)
    assert {name: again.value(name) for name in again.keys()} == {name: decisions.value(name) for name in again.keys()}  # noqa: SIM118
    with pytest.raises(StoreError, match=r"sinkDecisions\.json"):
        made(MemoryState({"sinks": {"s": {"aborted": {"x": 1}}}}))


def test_a_sink_for_one_batch_is_forgotten_a_day_after_it_is_done_and_others_never() -> None:
    decisions = made()
    decisions.commit(batch(0, "passing", is_passing=True), ["a"], 0)
    decisions.commit(batch(0, "staying"), ["a"], 0)
    decisions.expire(10 * DAY_MS)
    assert set(decisions.keys()) == {"passing", "staying"}, "it is not done"
    decisions.done(batch(0, "passing"))
    decisions.done(batch(0, "staying"))
    decisions.expire(DAY_MS)
    assert len(decisions) == 2
    decisions.expire(DAY_MS + 1)
    assert decisions.keys() == ["staying"]


@pytest.mark.parametrize("name", ["", "g" * 128, "a/b", "a b", "a\x01", "a" * 1_000_000])
def test_what_is_no_name_of_a_broker_group_is_refused_and_never_kept(name: str) -> None:
    decisions, far = made(), Batch("s", 0, name)
    told = [decisions.reserve(far, 0), decisions.learn(far, ["a"], 0), decisions.abort(far, ["a"], 0, is_learned=True)]
    told.append(decisions.commit(batch(0), ["a"], 0, ["broker-b", name]))
    assert [code(refused) for refused in told] == [ResponseCode.INVALID_PARAMETER] * 4
    assert all("is no name of a broker group" in str(refused) and len(str(refused)) < 200 for refused in told)
    assert len(decisions) == 0


def test_every_table_is_bounded_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SINKS_MAX", 2)
    monkeypatch.setattr(rows, "PARTS_MAX", 3)
    monkeypatch.setattr(module, "NAMES_MAX", 4)
    decisions = made()
    assert code(decisions.commit(batch(0), list("abcd"), 0)) == ResponseCode.INVALID_PARAMETER
    assert decisions.commit(batch(0), list("abc"), 0) is None
    assert code(decisions.commit(batch(0, "t"), list("ab"), 0)) == ResponseCode.SYSTEM_BUSY
    assert decisions.commit(batch(0, "t"), list("a"), 0) is None
    assert code(decisions.commit(batch(0, "u"), [], 0)) == ResponseCode.SYSTEM_BUSY
    for number, sink, parts in ((-1, "new", ["a"]), (1, "a/b", ["a"]), (1, "s", ["a b"])):
        assert code(decisions.abort(batch(number, sink), parts, 0)) == ResponseCode.INVALID_PARAMETER
    assert decisions.counts.refused == 6


def test_an_abort_is_remembered_for_an_hour_at_least_and_refused_where_there_is_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "NAMES_MAX", 2)
    decisions = made()
    decisions.abort(batch(1), ["a"], 0)
    decisions.abort(batch(1), ["b"], 1000)
    hour_ms = 3_600_000
    assert code(decisions.abort(batch(1), ["c"], hour_ms - 1)) == ResponseCode.SYSTEM_BUSY
    assert code(decisions.commit(batch(1), ["a"], hour_ms - 1)) == ResponseCode.TRANSACTION_SHOULD_ROLLBACK
    assert decisions.abort(batch(1), ["c"], hour_ms) is None, "the oldest made room"
    known = decisions.find("s")
    assert known is not None and set(known.aborted) == {(1, "b"), (1, "c")}


def test_aborts_of_batches_up_to_a_decided_one_need_not_be_remembered() -> None:
    decisions = made()
    decisions.abort(batch(1), ["a"], 0)
    decisions.abort(batch(5), ["b"], 0)
    decisions.commit(batch(1), ["c"], 0)
    known = decisions.find("s")
    assert known is not None and set(known.aborted) == {(5, "b")}
