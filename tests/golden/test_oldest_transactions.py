"""RocketMQ 3.2.6: its producers' frames, its transaction types, and the folders that its broker wrote.

The frames are built from what is known of that client, byte for byte as its fastjson writes them; none could be run
here.  What is different from today's: no unique keys, so the message id in a reply is the one with the log offset; the
type of a transaction stands in sysFlag (prepared 4, commit 8, rollback 12); END_TRANSACTION has neither topic nor
transactionId; `version` 79; nothing says which serialization it wants.  The types in END_TRANSACTION are the same
numbers.

In a folder of its broker there is no half queue: a transaction is a PREPARED record under its own topic, without a
queue entry, then a COMMIT record, which repeats it and has one, or a ROLLBACK record, empty and without one.
"""

from __future__ import annotations

import pytest

from gantry.leaves import frames, properties, records
from gantry.model import names
from testkit.foreignrecords import append_foreign
from testkit.transactionplay import GROUP, HOST, TOPIC, Half, TransactionPlay

TEXT = r"TRAN_MSG\u0001true\u0002PGROUP\u0001payers\u0002KEYS\u0001bill-7\u0002TAGS\u0001paid\u0002"
SENDS = [
    '{"code":10,"extFields":{"topic":"orders","queueId":"3","producerGroup":"payers","defaultTopic":"TBW102",'
    '"defaultTopicQueueNums":"4","sysFlag":"4","bornTimestamp":"1420070400000","flag":"0","reconsumeTimes":"0",'
    '"unitMode":"false","properties":"' + TEXT + '"},"flag":0,"language":"JAVA","opaque":5,"version":79}',
    '{"code":310,"extFields":{"f":"4","g":"1420070400000","d":"4","e":"3","b":"orders","c":"TBW102","a":"payers",'
    '"j":"0","k":"false","h":"0","i":"' + TEXT + '"},"flag":0,"language":"JAVA","opaque":5,"version":79}',
]
END = (
    '{"code":37,"extFields":{"commitOrRollback":"%d","producerGroup":"payers","tranStateTableOffset":"0",'
    '"fromTransactionCheck":"%s","msgId":"%s","commitLogOffset":"0"},'
    '"flag":2,"language":"JAVA","opaque":6,"version":79}'
)
MESSAGE_ID = "7F00000100002A9F0000000000000000"  # address and log offset of the first record of this broker
PREPARED, COMMIT, ROLLBACK, UNKNOWN = 4, 8, 12, 0


def golden(header: str, body: bytes = b"") -> bytes:
    text = header.encode()
    return (4 + len(text) + len(body)).to_bytes(4, "big") + len(text).to_bytes(4, "big") + text + body


def end(kind: int, is_check: bool = False) -> bytes:
    return golden(END % (kind, "true" if is_check else "false", MESSAGE_ID))


def receive(play: TransactionPlay, data: bytes) -> None:
    """What came in, on its way through the real handlers."""
    used, (request,) = frames.decode(data, 0, len(data))
    assert used == len(data) and request.version == 79
    if isinstance(request, frames.Send):
        play.sending.send_run(play.connection, [request])  # type: ignore[arg-type]
        play.sending.append_gathered()
    else:
        assert isinstance(request, frames.End) and request.is_oneway
        play.ends.end_run(play.connection, [request])  # type: ignore[arg-type]
        play.turn()


@pytest.mark.parametrize("header", SENDS, ids=["10", "310"])
@pytest.mark.parametrize("kind", [COMMIT, ROLLBACK, UNKNOWN])
def test_a_producer_s_half_and_end(header: str, kind: int) -> None:
    play = TransactionPlay()
    receive(play, golden(header, b"paid"))
    (reply,) = play.connection.take()
    assert (reply.code, reply.opaque) == (0, 5)
    assert reply.ext["msgId"] == MESSAGE_ID, "from it the client takes the log offset of its END_TRANSACTION"
    assert (reply.ext["queueId"], reply.ext["queueOffset"]) == ("3", "0")
    assert play.visible() == [] and len(play.book.open) == 1
    receive(play, end(kind))
    assert not list(play.connection.take()), "one-way"
    assert len(play.book.open) == (kind == UNKNOWN)
    delivered = list(play.records(TOPIC, 3))
    assert len(delivered) == (kind == COMMIT)
    for real in delivered:
        pairs = properties.parse(real.properties)
        assert (real.body, real.sys_flag & 0xC, real.prepared_offset) == (b"paid", COMMIT, 0)
        assert (pairs["KEYS"], pairs["TAGS"], pairs["PGROUP"], pairs["TRAN_MSG"]) == ("bill-7", "paid", GROUP, "true")


@pytest.mark.parametrize("kind", [COMMIT, ROLLBACK])
def test_a_check_that_it_can_read_and_its_answer(kind: int) -> None:
    play = TransactionPlay()
    receive(play, golden(SENDS[0], b"paid"))
    producer = play.join()
    play.clock.advance(60_000)
    for _ in play.service.run_pass():
        pass
    (check,) = producer.take()
    assert (check.ext["tranStateTableOffset"], check.ext["commitLogOffset"]) == ("0", "0")
    shown = records.view(check.body, 0, len(check.body))
    assert (shown.topic, shown.queue_id, shown.body) == (TOPIC, 3, b"paid")
    assert properties.parse(shown.properties)["PGROUP"] == GROUP, "by it the client finds its listener"
    receive(play, end(kind, is_check=True))
    assert not play.book.open and play.service.counts.answered == 1
    assert [body for body, _ in play.visible()] == [b"paid"] * (kind == COMMIT)


def old_record(body: bytes, kind: int, prepared_offset: int = 0) -> frames.Send:
    text = properties.pack({"TRAN_MSG": "true", "PGROUP": GROUP, "KEYS": "bill-7"})
    return frames.Send(
        topic=TOPIC,
        sys_flag=kind,
        properties=text if kind != ROLLBACK else b"",
        body=body,
        born_host=HOST,
        prepared_offset=prepared_offset,
    )


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_folder_of_its_broker_shows_what_was_committed_and_nothing_else(is_clean: bool) -> None:
    play = TransactionPlay()
    prepared = [old_record(body, PREPARED) for body in (b"paid", b"cancelled", b"left open")]
    append_foreign(play.store, prepared)
    paid, cancelled, _ = (one.log_offset for one in prepared)
    append_foreign(play.store, [old_record(b"paid", COMMIT, paid), old_record(b"", ROLLBACK, cancelled)])
    append_foreign(play.store, [old_record(b"plain", 0)])
    if is_clean:
        play.reopen()
    else:
        play.save()
        play.crash()
    seen = [b"paid", b"plain"]
    assert [body for body, _ in play.visible()] == seen
    assert [record.queue_offset for record in play.records(TOPIC)] == [0, 1]
    assert play.store.queue_range(names.HALF_TOPIC, 0) is None and not play.book.open
    play.join()
    assert play.run_pass(3_600_000) == [] and play.service.counts.repaired == 0
    for one in prepared:
        # An end of its time names them by log offset; they are no halves, and their end is known or lost.
        assert play.end(Half(0, one.queue_offset, one.log_offset, ""), COMMIT) == 1
    receive(play, golden(SENDS[0], b"new"))
    fresh = play.book.oldest()
    assert fresh is not None
    assert play.end(Half(0, fresh.current, fresh.log_offset, ""), COMMIT) == 0
    assert [body for body, _ in play.visible()] == [*seen, b"new"]
    play.reopen()
    assert [body for body, _ in play.visible()] == [*seen, b"new"] and not play.book.open
