"""The last touches to a message, and what becomes of a run that cannot be appended."""

from __future__ import annotations

import pytest

from gantry.append.batch import MessageStamp
from gantry.append.writing import GATE_DISK_FULL
from gantry.leaves import frames, properties
from gantry.store.settings import Flush
from testkit.sendplay import HOST, SendPlay, as_decoded, message

OURS = {"MSG_REGION": "r", "TRACE_ON": "true", "CLUSTER": "c"}


def appended(play: SendPlay, send: frames.Send) -> dict[str, str]:
    assert play.appender.append_run(play.connection, [send]) is None  # type: ignore[arg-type]
    return properties.parse(send.properties)


def test_a_message_gets_our_properties_and_keeps_its_own() -> None:
    play = SendPlay()
    send = message(pairs={"KEYS": "k", "UNIQ_KEY": "u", "mine": "1"})
    assert appended(play, send) == {"KEYS": "k", "UNIQ_KEY": "u", "mine": "1"} | OURS
    assert send.born_host == play.connection.born_host


def test_a_message_without_a_unique_key_gets_one_that_its_producer_is_told() -> None:
    play = SendPlay()
    send = message(pairs={"TAGS": "a"})
    assert appended(play, send)["UNIQ_KEY"] == "KEY1"
    (reply,) = play.connection.take()
    assert reply.ext["transactionId"] == "KEY1"


def test_a_message_that_is_sent_again_has_our_properties_once() -> None:
    play = SendPlay()
    send = message(pairs={"UNIQ_KEY": "u", "CLUSTER": "far", "MSG_REGION": "away", "TRACE_ON": "false", "mine": "1"})
    assert appended(play, send) == {"UNIQ_KEY": "u", "mine": "1"} | OURS
    assert send.properties.count(b"CLUSTER") == 1


@pytest.mark.parametrize("text", [b"UNIQ_KEY\x01u\x02mine\x011", b"mine\x011", b""])
def test_a_string_that_ends_open_is_closed_first(text: bytes) -> None:
    play = SendPlay()
    pairs = appended(play, as_decoded(frames.Send(topic="orders", properties=text)))
    assert {name: pairs[name] for name in OURS} == OURS and pairs["UNIQ_KEY"] in ("u", "KEY1")


def test_pop_ck_is_taken_out() -> None:
    play = SendPlay()
    assert "POP_CK" not in appended(play, message(pairs={"UNIQ_KEY": "u", "POP_CK": "forged"}))


def test_our_additions_always_fit_behind_the_longest_properties_allowed() -> None:
    marks = MessageStamp("c" * 50, "r" * 50, HOST)
    play = SendPlay()
    play.appender._suffix = marks.suffix
    send = as_decoded(frames.Send(topic="orders", properties=b"p\x01" + b"x" * (marks.properties_bytes_max - 2)))
    assert len(send.properties) == marks.properties_bytes_max
    play.appender._next_unique_key = lambda: "K" * 56
    appended(play, send)
    assert len(send.properties) <= 32767


def test_who_does_not_want_to_wait_is_answered_before_the_disk_has_it() -> None:
    play = SendPlay(Flush.SYNC)
    patient, hasty = message(), message(pairs={"UNIQ_KEY": "h", "WAIT": "false"})
    play.appender.append_run(play.connection, [patient, hasty])  # type: ignore[arg-type]
    assert [reply.opaque for reply in play.connection.take()] == [hasty.opaque]
    play.flush()
    assert [reply.opaque for reply in play.connection.take()] == [patient.opaque]


def test_one_way_messages_are_never_answered() -> None:
    play = SendPlay(Flush.SYNC)
    send = message()
    send.rpc_flag = 2
    play.appender.append_run(play.connection, [send])  # type: ignore[arg-type]
    play.flush()
    assert play.connection.take() == [] and len(play.acks) == 0
    assert play.stored("orders") == [b"body"]


def test_a_full_disk_is_a_refusal_that_shuts_the_gate_and_stores_nothing() -> None:
    play = SendPlay()
    appended(play, message())
    play.connection.take()
    play.fill_disk()
    refusal = play.appender.append_run(play.connection, [message(), message()])  # type: ignore[arg-type]
    assert refusal is not None and refusal.code == 14
    assert play.gate.reasons == [GATE_DISK_FULL] and play.connection.take() == []
    assert play.store.next_queue_offset("orders", 0) == 1


def test_a_failed_store_is_a_refusal() -> None:
    play = SendPlay()
    play.store.close()
    refusal = play.appender.append_run(play.connection, [message()])  # type: ignore[arg-type]
    assert refusal is not None and refusal.code == 14 and not play.gate.reasons


def test_what_was_appended_is_counted_by_the_run() -> None:
    play = SendPlay()
    play.appender.append_run(play.connection, [message(), message()])  # type: ignore[arg-type]
    assert (play.appender.messages, play.appender.bytes) == (2, play.store.written.offset)
