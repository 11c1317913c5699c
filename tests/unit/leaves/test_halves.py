"""Half messages as bytes; what transactions make of them: unit/transaction/test_half.py."""

from __future__ import annotations

import pytest

from gantry.errors import CorruptRecordError
from gantry.leaves import frames, halves, properties, records

HOST = bytes((10, 0, 0, 1)) + (10911).to_bytes(4, "big")


def test_a_number_that_is_none_counts_as_not_said() -> None:
    text = b"TRANSACTION_CHECK_TIMES\x01-3\x02GANTRY_TX_SINCE_MS\x01soon\x02REAL_QID\x01+2\x02UNIQ_KEY\x01\xff\x02"
    facts = halves.HalfFacts(text, 3)
    assert (facts.checks, facts.since_ms, facts.queue_id, facts.unique_key) == (0, 0, 2, "�")
    assert (facts.root, facts.is_rearmed, facts.immunity_ms) == (3, False, None)


def test_a_disguise_takes_out_what_only_the_broker_may_say() -> None:
    text = b"TRAN_PREPARED_QUEUE_OFFSET\x017\x02PGROUP\x01payers\x02TRAN_MSG\x01true\x02a\x01b"
    send = frames.Send(topic="orders", queue_id=12, properties=text, traits=properties.scan(text)[0])
    halves.disguise(send, "HALF")
    said = properties.parse(send.properties)
    assert said == {"PGROUP": "payers", "TRAN_MSG": "true", "a": "b", "REAL_TOPIC": "orders", "REAL_QID": "12"}
    assert (send.topic, send.queue_id, send.traits & properties.TRAIT_ENDS_OPEN) == ("HALF", 0, 0)


def test_the_message_of_a_record_is_what_was_appended() -> None:
    text = b"KEYS\x01k\x02TAGS\x01t\x02UNIQ_KEY\x01u\x02"
    sent = frames.Send(topic="orders", queue_id=3, properties=text, body=b"paid", flag=9, born_ms=5, born_host=HOST)
    sent.queue_offset = 0
    data = bytearray(records.size_of(sent))
    records.encode_run(data, 0, 4711, [sent], 9, HOST)
    again = halves.message_at(data, 0, len(data))
    assert (again.topic, again.queue_id, again.body, again.flag, again.born_ms) == ("orders", 3, b"paid", 9, 5)
    assert (again.keys, again.unique_key, again.properties, again.born_host) == (b"k", b"u", text, HOST)
    with pytest.raises(CorruptRecordError):
        halves.message_at(data, 0, len(data) - 1)
