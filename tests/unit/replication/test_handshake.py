"""Where a slave begins, and whom a master does not take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gantry.replication.epochs import table_of
from gantry.replication.handshake import (
    Hello,
    MasterStatus,
    No,
    ProofPurpose,
    Step,
    Welcome,
    is_proven,
    judge,
    prove,
    read_hello,
    read_welcome,
    tail_range,
)
from gantry.replication.haproof import Keys

MINE = MasterStatus("cluster", "broker-a", "store-m", 3, table_of([(1, 0), (2, 500), (3, 900)]), 200, 1000, 4096)
SLAVE = Hello("cluster", "broker-a", 1, "store-s", table_of([(1, 0), (2, 500)]), 0, 800, 700, 4096)


def at(hello: Hello, mine: MasterStatus = MINE) -> tuple[Step, int]:
    answer = judge(mine, hello, lambda end: hello.tail)
    assert isinstance(answer, Welcome), answer
    return answer.step, answer.at


def why(hello: Hello, mine: MasterStatus = MINE) -> str:
    answer = judge(mine, hello, lambda end: hello.tail)
    assert isinstance(answer, No), answer
    return answer.reason


def test_a_slave_that_is_only_behind_follows_from_its_end() -> None:
    assert at(SLAVE) == (Step.FOLLOW, 800)
    assert at(replace(SLAVE, end=1000, epochs=MINE.epochs)) == (Step.FOLLOW, 1000)


def test_a_slave_that_went_past_the_last_common_epoch_is_cut_there() -> None:
    assert at(replace(SLAVE, end=950, confirmed=900)) == (Step.CUT, 900)


def test_what_a_slave_knows_to_be_confirmed_is_never_cut() -> None:
    assert "lacks confirmed messages" in why(replace(SLAVE, end=950, confirmed=901))


def test_an_empty_slave_begins_where_the_log_does() -> None:
    empty = Hello("", "broker-a", 1, "store-s", table_of([]), 0, 0, 0, 4096)
    assert at(empty) == (Step.BEGIN, 200)
    assert at(empty, replace(MINE, start=0)) == (Step.FOLLOW, 0)
    assert at(replace(empty, start=200, end=200, confirmed=200)) == (Step.FOLLOW, 200)
    assert at(replace(empty, start=100, end=100, confirmed=100)) == (Step.BEGIN, 200)
    assert "begins at 300" in why(replace(empty, start=300, end=300, confirmed=300))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"group": "broker-b"}, "set brokerName"),
        ({"cluster_uid": "other"}, "belongs to the cluster other"),
        ({"store_uid": "store-m"}, "copy of this one"),
        ({"place": 0}, "brokerId 0"),
        ({"place": 64}, "brokerId 64"),
        ({"segment_bytes": 8192}, "mappedFileSizeCommitLog"),
        ({"epochs": table_of([(7, 3)])}, "no epoch in common"),
        ({"end": 150, "confirmed": 0}, "empty the slave's folder"),
    ],
)
def test_a_slave_that_does_not_fit_is_told_what_to_do(change: dict[str, object], reason: str) -> None:
    assert reason in why(replace(SLAVE, **change))  # type: ignore[arg-type]


def test_what_was_said_is_read_back() -> None:
    assert read_hello(SLAVE.encode()) == SLAVE
    welcome = Welcome("cluster", 3, MINE.epochs, Step.CUT, 900)
    assert read_welcome(welcome.encode()) == welcome


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"[]",
        b"{}",
        SLAVE.encode().replace(b'"end":800', b'"end":-1'),
        SLAVE.encode().replace(b'"confirmed":700', b'"confirmed":801'),
        SLAVE.encode().replace(b'"end":800', b'"end":1e99'),
        SLAVE.encode().replace(b'"store-s"', b'""'),
        SLAVE.encode().replace(b'"store-s"', b'"' + b"x" * 129 + b'"'),
        SLAVE.encode().replace(b"[1,0]", b"[1]"),
        SLAVE.encode().replace(b"[1,0]", b"[9,0]"),
        SLAVE.encode().replace(b"[1,0]", b'["1",0]'),
    ],
)
def test_a_hello_that_cannot_be_is_refused(said: bytes) -> None:
    with pytest.raises(ValueError):
        read_hello(said)


def test_a_proof_is_good_for_one_part_of_one_link_and_one_text() -> None:
    keys, slave, other = Keys(b"secret"), b"a" * 32, b"b" * 32
    proof = prove(b"secret", ProofPurpose.HELLO, slave, other, b"said")
    assert is_proven(proof, keys, ProofPurpose.HELLO, slave, other, b"said")
    assert not is_proven(proof, Keys(b"Secret"), ProofPurpose.HELLO, slave, other, b"said")
    assert not is_proven(proof, keys, ProofPurpose.WELCOME, slave, other, b"said")
    assert not is_proven(proof, keys, ProofPurpose.HELLO, b"c" * 32, other, b"said")
    assert not is_proven(proof, keys, ProofPurpose.HELLO, slave, b"c" * 32, b"said")
    assert not is_proven(proof, keys, ProofPurpose.HELLO, slave, other, b"Said")


def test_the_bytes_before_the_end_lie_in_one_segment() -> None:
    assert tail_range(0, 0, 4096) == (0, 0)
    assert tail_range(100, 0, 8192) == (0, 100)
    assert tail_range(8192, 0, 8192) == (4096, 8192)
    assert tail_range(8292, 0, 8192) == (8192, 8292)
    assert tail_range(20000, 0, 1 << 20) == (15904, 20000)
