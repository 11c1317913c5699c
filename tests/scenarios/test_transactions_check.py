"""Plays of checking back: hours of it on a virtual clock, puts back, what is given up, who is asked."""

from __future__ import annotations

import asyncio
import logging

import pytest

from gantry.leaves import properties, records
from gantry.leaves.frames import Command
from gantry.model import names
from gantry.store.settings import Flush
from gantry.transaction.checker import CheckPolicy
from gantry.transaction.oplog import TransactionState
from gantry.wire import bodies
from gantry.wire.codes import RequestCode, ResponseCode
from testkit.transactionplay import COMMIT, GROUP, ROLLBACK, TOPIC, UNKNOWN, Half, TransactionPlay

_S = 1000
_H = 3600 * _S
_INTERVAL = 30 * _S
# Two settled halves behind an open one are too many: everything moves.
RESTLESS = CheckPolicy(settled_behind_max=2, settled_behind_factor=0)


def test_nothing_is_asked_before_its_immunity_time_and_no_pass_appends_for_it() -> None:
    play = TransactionPlay()
    play.join()
    plain, patient = play.half(key="plain"), play.half(key="patient", CHECK_IMMUNITY_TIME_IN_SECONDS="100")
    cloud = play.half(key="cloud", CheckImmunityTimeInSeconds="60")
    assert play.run_pass(6 * _S) == []
    end = play.store.written.offset
    assert [question.key for question in play.run_pass(1)] == ["plain"]
    assert [question.key for question in play.run_pass(54 * _S)] == ["plain", "cloud"]
    assert [question.key for question in play.run_pass(41 * _S)] == ["plain", "patient", "cloud"]
    assert play.store.written.offset == end, "asking appends nothing"
    for half in (plain, patient, cloud):
        assert play.end(half, COMMIT, is_check=True) == 0, "a late commit is accepted"
    assert len(play.visible()) == 3


def test_the_cloud_s_first_check_comes_with_the_tick_after_its_immunity_time() -> None:
    play = TransactionPlay(rules=CheckPolicy(checks_max=0, age_max_ms=12 * _H))
    play.join()
    play.clock.advance(28 * _S)
    # Ticks at 30, 60, 90 and so on; the half comes at 28 and 2 s, so they are 28, 58, 88 s behind it.
    play.clock.advance(4 * _S)
    play.half(key="k", CheckImmunityTimeInSeconds="60")
    asked = [len(play.run_pass(wait)) for wait in (28 * _S, _INTERVAL, _INTERVAL)]
    assert asked == [0, 0, 1]


def test_it_is_given_up_after_fifteen_checks_and_can_be_armed_again() -> None:
    play = TransactionPlay()
    play.join()
    half = play.half(key="k")
    checks = [question.checks for _ in range(15) for question in play.run_pass(_INTERVAL)]
    assert checks == list(range(1, 16))
    assert play.run_pass(_INTERVAL) == [] and play.service.counts.given_up == 1
    (lost,) = play.records(names.CHECK_MAX_TIME_TOPIC)
    assert lost.body == b"paid" and not play.book.open
    offset_id = records.offset_message_id(lost.store_host, lost.log_offset)
    again = play.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, topic=names.CHECK_MAX_TIME_TOPIC, msgId=offset_id)
    assert again is not None and again.code == 0
    twice = play.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, topic=names.CHECK_MAX_TIME_TOPIC, msgId=offset_id)
    assert twice is not None and twice.code == ResponseCode.SYSTEM_ERROR
    play.reopen()
    play.join()
    (question,) = play.run_pass(_INTERVAL)
    assert (question.key, question.checks) == ("k", 1)
    assert play.end(question.half, COMMIT, is_check=True) == 0
    assert play.end(half, COMMIT) == 0, "the first half names the same transaction"
    assert play.end(half, ROLLBACK) == ResponseCode.TRANSACTION_SHOULD_COMMIT
    assert play.visible() == [(b"paid", "k")]


def test_a_producer_s_late_answer_counts_after_giving_up() -> None:
    play = TransactionPlay(rules=CheckPolicy(checks_max=1))
    play.join()
    half = play.half(key="k")
    play.run_pass(_INTERVAL)
    play.run_pass(_INTERVAL)
    assert play.service.counts.given_up == 1
    play.reopen()
    assert play.end(half, COMMIT) == 0
    assert play.visible() == [(b"paid", "k")]
    assert play.end(half, COMMIT) == 0 and len(play.visible()) == 1


def test_a_producer_service_that_is_away_for_an_hour_loses_nothing() -> None:
    play = TransactionPlay()
    halves = [play.half(key=f"k{number}") for number in range(50)]
    dead = play.join()
    dead.closed = True
    for _ in range(120):
        assert play.run_pass(_INTERVAL) == []
    assert play.service.counts.given_up == 0 and len(play.book.open) == 50
    assert play.service.counts.alone == 50 * 120
    assert any(GROUP in text for text in play.said)
    play.reopen()
    play.join()
    asked = play.run_pass(_INTERVAL)
    assert [question.checks for question in asked] == [1] * 50
    for number, question in enumerate(asked):
        assert play.end(question.half, COMMIT if number % 2 else ROLLBACK, is_check=True) == 0
    assert not play.book.open and len(play.visible()) == 25
    assert len(halves) == 50


def test_whose_service_goes_away_after_its_last_check_is_given_up_by_age_only() -> None:
    play = TransactionPlay(rules=CheckPolicy(checks_max=2, age_max_ms=_H))
    producer = play.join()
    half = play.half(key="k")
    play.half(key="never answered")
    for _ in range(2):
        play.run_pass(_INTERVAL)
    producer.closed = True
    for _ in range(60):
        play.run_pass(_INTERVAL)
    assert play.service.counts.given_up == 0 and len(play.book.open) == 2 and play.service.counts.alone == 120
    assert play.end(half, COMMIT) == 0, "back in time, with the answer"
    play.run_pass(_H)
    assert play.service.counts.given_up == 1 and play.visible() == [(b"paid", "k")]


def test_without_a_connection_it_is_given_up_by_age_and_reported() -> None:
    play = TransactionPlay(rules=CheckPolicy(age_max_ms=12 * _H))
    play.half(key="k")
    play.run_pass(12 * _H)
    assert play.service.counts.given_up == 0
    play.run_pass(_INTERVAL)
    assert play.service.counts.given_up == 1 and any("given up" in text for text in play.said)


def test_twelve_hours_of_asking_append_nothing_and_end_with_giving_up() -> None:
    play = TransactionPlay(rules=CheckPolicy(checks_max=0, age_max_ms=12 * _H))
    play.join()
    for number in range(20):
        play.half(key=f"k{number}")
    end = play.store.written.offset
    asked = sum(len(play.run_pass(_INTERVAL)) for _ in range(12 * 120 - 1))
    assert asked == 20 * (12 * 120 - 1) and play.store.written.offset == end
    play.run_pass(2 * _INTERVAL)
    assert play.service.counts.given_up == 20 and not play.book.open


def test_members_are_asked_in_turn_and_full_or_dead_ones_are_not() -> None:
    play = TransactionPlay()
    one, two, full, dead = (play.join(f"10.0.0.{number}:1") for number in range(4))
    full.is_writable = False
    dead.closed = True
    for number in range(10):
        play.half(key=f"k{number}")
    play.run_pass(_INTERVAL)
    assert len(one.chunks) == len(two.chunks) == 5 and not full.chunks
    play.producers = [full]
    checks = [half.checks for half in play.book.open.values()]
    assert play.run_pass(_INTERVAL) == []
    assert [half.checks for half in play.book.open.values()] == checks, "what was not written does not count"


def test_a_put_back_keeps_identity_checks_and_age_and_any_copy_names_the_transaction() -> None:
    play = TransactionPlay(rules=RESTLESS)
    play.join()
    old = play.half(key="old")
    copies = [old]
    for turn in range(3):
        (question,) = play.run_pass(_INTERVAL)
        assert question.checks == turn + 1
        copies.append(question.half)
        for number in range(4):
            play.end(play.half(key=f"{turn}.{number}"), COMMIT)
        play.save()
        play.reopen()
        play.join()
        assert len(play.book.open) == 1
        assert play.offsets.query(names.TRANSACTION_GROUP, names.HALF_TOPIC, 0) > copies[-1].queue_offset
    assert play.service.book.map.get(old.queue_offset) is None, "its root is before all that was read back"
    assert len({copy.queue_offset for copy in copies}) == 3
    assert play.end(old, COMMIT) == 0
    for copy in copies:
        assert play.end(copy, COMMIT) == 0
        assert play.end(copy, ROLLBACK) == ResponseCode.TRANSACTION_SHOULD_COMMIT
    assert [key for _, key in play.visible()].count("old") == 1
    play.save()
    play.reopen()
    assert not play.book.open
    assert play.end(copies[1], COMMIT) == 0, "found in the index"
    assert play.end(copies[0], ROLLBACK) == ResponseCode.TRANSACTION_SHOULD_COMMIT
    assert [key for _, key in play.visible()].count("old") == 1


def test_ends_of_one_turn_leave_as_one_run_each_message_before_its_op() -> None:
    play = TransactionPlay()
    halves = [play.half(key=f"k{number}") for number in range(70)]
    end = play.store.written.offset
    opaques = [play.end_later(half, COMMIT if number % 3 else ROLLBACK) for number, half in enumerate(halves)]
    opaques += [play.end_later(halves[1], COMMIT), play.end_later(halves[1], ROLLBACK)]
    play.turn()
    answers = play.answers()
    assert [answers[opaque] for opaque in opaques[:71]] == [0] * 71 and answers[opaques[71]] == 200
    ops = list(play.records(names.OP_HALF_TOPIC))
    assert [op.body for op in ops] == [b"%d" % half.queue_offset for half in halves], "bare numbers, as in RocketMQ 4"
    written = [entry for entries in play.store.reader.entries(end) for entry in entries]
    op = names.OP_HALF_TOPIC
    assert [entry.topic for entry in written[:8]] == [op, TOPIC, op, TOPIC, op, op, TOPIC, op]
    assert len(play.visible()) == sum(1 for number in range(70) if number % 3)


def test_unknown_changes_nothing() -> None:
    play = TransactionPlay()
    half = play.half()
    assert play.end(half, UNKNOWN, is_check=True) == 0
    assert len(play.book.open) == 1 and play.service.counts.unknown == 1


def test_a_commit_for_a_topic_that_was_deleted_waits_until_it_is_there_again() -> None:
    play = TransactionPlay()
    half = play.half(topic="shortlived")
    play.topics.delete("shortlived")
    assert play.end(half, COMMIT) == ResponseCode.TOPIC_NOT_EXIST
    assert len(play.book.open) == 1


def test_a_group_that_is_not_the_transactions_alone_is_reported() -> None:
    play = TransactionPlay()
    play.half()
    play.service.group_rule.note_plain("others")
    play.service.group_rule.note_plain(GROUP)
    play.subscribed[GROUP] = [TOPIC, f"%RETRY%{GROUP}", "bills"]
    play.run_pass(0)
    assert set(play.service.group_rule.violations) == {(GROUP, "plain sends"), (GROUP, "consumers of other topics")}


def test_what_a_client_sends_under_the_broker_s_names_is_taken_out() -> None:
    play = TransactionPlay()
    first = play.half(key="first")
    play.half(
        key="liar",
        TRAN_PREPARED_QUEUE_OFFSET=str(first.queue_offset),
        TRANSACTION_CHECK_TIMES="14",
        REAL_TOPIC="bills",
        GANTRY_TX_REARMED="1",
    )
    assert sorted(half.root for half in play.book.open.values()) == [0, 1]
    assert [half.checks for half in play.book.open.values()] == [0, 0]
    assert play.book.topics == {TOPIC: 2}


def test_who_settles_by_hand_leaves_a_line_with_every_name_quoted(caplog: pytest.LogCaptureFixture) -> None:
    play = TransactionPlay(rules=CheckPolicy(checks_max=1))
    play.join()
    play.half(key="k\nforged line")
    for _ in range(2):
        play.run_pass(_INTERVAL)
    (lost,) = play.records(names.CHECK_MAX_TIME_TOPIC)
    msg_id = records.offset_message_id(lost.store_host, lost.log_offset)
    caplog.set_level(logging.INFO, "gantry.audit")
    play.ask(RequestCode.SETTLE_TRANSACTION, id="0", action="eat", operator="me")
    play.ask(RequestCode.SETTLE_TRANSACTION, id="nobody", action="commit", operator="me")
    assert not caplog.messages, "nothing was asked for that could be done"
    play.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, topic=names.CHECK_MAX_TIME_TOPIC, msgId=msg_id)
    play.ask(RequestCode.SETTLE_TRANSACTION, id=msg_id, action="rollback", operator="me\nand you")
    named = "transaction 0 ('k\\nforged line') of group 'payers' for orders, asked by"
    assert [line.split(" from ")[0] for line in caplog.messages] == [
        f"rearm {named} ''",
        f"rollback {named} 'me\\nand you'",
    ]


def test_administration_lists_shows_and_settles() -> None:
    play = TransactionPlay(rules=CheckPolicy(checks_max=1))
    play.join()
    lost = play.half(key="lost", KEYS="bill-1")
    play.run_pass(_INTERVAL)
    play.run_pass(_INTERVAL)
    kept = play.half(b"kept", key="kept")
    other = play.half(b"other", key="other", topic="bills")

    def listed(**ext: str) -> list[dict[str, object]]:
        request = Command(RequestCode.LIST_TRANSACTIONS, opaque=1, ext=ext)
        answer = asyncio.run(play.handlers.page(play.connection, request))  # type: ignore[arg-type]
        body = bodies.loads_object(answer.body)
        assert body["open"] == 2
        found = body["transactions"]
        assert isinstance(found, list)
        return found

    assert [one["id"] for one in listed()] == ["kept", "other"]
    assert [one["id"] for one in listed(topic="bills")] == ["other"]
    (shown,) = listed(state="given-up")
    assert (shown["id"], shown["keys"], shown["state"], shown["checks"]) == ("lost", "bill-1", "given-up", 1)
    one = play.ask(RequestCode.SHOW_TRANSACTION, id="kept")
    assert one is not None and bodies.loads_object(one.body)["root"] == kept.queue_offset
    for wanted, action, code in (
        ("lost", "rearm", 0),
        ("lost", "commit", 0),
        (str(kept.queue_offset), "rollback", 0),
        ("other", "rearm", ResponseCode.SYSTEM_ERROR),
        ("other", "eat", ResponseCode.INVALID_PARAMETER),
        ("nobody", "commit", ResponseCode.QUERY_NOT_FOUND),
        ("kept", "commit", ResponseCode.TRANSACTION_SHOULD_ROLLBACK),
    ):
        answer = play.ask(RequestCode.SETTLE_TRANSACTION, id=wanted, action=action, operator="me")
        assert answer is not None and answer.code == code, (wanted, action, answer)
    assert play.visible() == [(b"paid", "lost")]
    assert (lost.code, other.code) == (0, 0)


def test_a_committed_message_is_the_half_without_its_disguise() -> None:
    play = TransactionPlay()
    half: Half = play.half(b"body", key="k", topic="bills", queue_id=3, TAGS="red", KEYS="a b")
    play.end(half, COMMIT)
    (real,) = play.records("bills", 3)
    assert properties.scan(real.properties)[1:3] == (b"k", b"a b")
    assert real.prepared_offset == half.log_offset and real.sys_flag & 0xC == 8


def test_halves_that_left_memory_are_brought_in_before_they_are_touched() -> None:
    play = TransactionPlay(
        Flush.SYNC, CheckPolicy(checks_max=2, settled_behind_max=1, settled_behind_factor=0), warm_bytes=0
    )
    play.join()
    half = play.half(key="k")
    play.flush()
    other = play.half(key="new")
    play.flush()
    play.end_later(other, ROLLBACK)
    play.flush()
    assert play.run_pass(_INTERVAL) == [], "not yet"
    play.flush()
    assert [question.checks for question in play.run_pass(0)] == [1]
    play.flush()
    opaque = play.end_later(half, COMMIT)
    play.turn()
    assert opaque not in play.answers(), "its record has to be read first"
    play.flush()
    assert play.visible() == [(b"paid", "k")]


def test_open_halves_are_carried_on_before_their_segment_goes_and_hold_it_until_then() -> None:
    play = TransactionPlay(segment_bytes=1 << 14, reserved_ms=3_600_000)
    old = play.half(key="old")
    assert play.store.retention.owed_from() == old.log_offset
    for _ in range(60):
        play.end(play.half(b"." * 900), COMMIT)
    play.save()
    assert play.service.counts.put_back == 0
    play.clock.advance(3_600_001)
    play.retain()
    assert play.service.counts.put_back >= 1
    owed = play.store.retention.owed_from()
    assert owed is not None and owed >= 1 << 14
    assert play.store.stats().log_start >= 1 << 14
    play.save()
    play.reopen()
    assert play.end(old, COMMIT) == 0 and ("old" in [key for _, key in play.visible()])


def test_what_was_settled_behind_an_open_half_stays_settled_whatever_a_crash_took() -> None:
    play = TransactionPlay()
    play.half(key="waits")
    paid, taken_back = play.half(key="paid"), play.half(key="taken back")
    assert play.end(paid, COMMIT) == play.end(taken_back, ROLLBACK) == 0
    play.save()
    positions = names.HALF_TOPIC, names.OP_HALF_TOPIC
    saved = {topic: play.offsets.query(names.TRANSACTION_GROUP, topic, 0) for topic in positions}
    assert saved == dict.fromkeys(positions, 0), "a broker that reads ops from there on does not know these ends"
    play.half(key="waits too")
    play.kill()
    play.join()
    assert play.book.outcome(paid.queue_offset) is TransactionState.COMMITTED
    assert [question.key for question in play.run_pass(_H)] == ["waits", "waits too"]
    assert play.end(paid, ROLLBACK) == ResponseCode.TRANSACTION_SHOULD_COMMIT
    assert play.end(taken_back, COMMIT) == ResponseCode.TRANSACTION_SHOULD_ROLLBACK
    assert [key for _, key in play.visible()] == ["paid"]
