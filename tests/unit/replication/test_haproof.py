"""Proofs of `/ha/v1`: who knows the secret is let in once, and nobody else at all."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantry.replication.haproof import NONCE, PROOF, TIME, WINDOW_MS, Door, Keys, Pass, Said, Turned, prove_answer

OLD, NEW = b"the old secret of the cluster", b"the new secret of the cluster"
NOW = 1_700_000_000_000
SEAL = Said("POST", "/ha/v1/seal?member=1", b'{"epoch":7}')


def nonce(number: int) -> bytes:
    return number.to_bytes(16, "big")


def asked(keys: Keys, said: Said = SEAL, number: int = 1, at: int = NOW) -> dict[str, str]:
    return keys.ask(said, nonce(number), at)


def reason(found: Pass | Turned) -> str:
    assert isinstance(found, Turned)
    return found.reason


def test_who_knows_the_secret_is_let_in_once() -> None:
    door, headers = Door(Keys(OLD)), asked(Keys(OLD))
    assert door.check(SEAL, headers, NOW) == Pass(OLD, headers[NONCE])
    again = door.check(SEAL, headers, NOW + 1)
    assert isinstance(again, Turned) and again.status == 401 and "before" in again.reason


@pytest.mark.parametrize(
    ("mine", "theirs", "is_in"),
    [
        (Keys(OLD, NEW), Keys(OLD), True),  # the new one is brought to everybody first
        (Keys(NEW, OLD), Keys(OLD, NEW), True),  # then asked with
        (Keys(OLD, NEW), Keys(NEW, OLD), True),
        (Keys(NEW, OLD), Keys(NEW), True),  # then the old one goes
        (Keys(OLD), Keys(NEW), False),
        (Keys(OLD, b""), Keys(b""), False),  # no second key is not an empty one
    ],
)
def test_during_a_change_either_of_two_keys_is_good(mine: Keys, theirs: Keys, is_in: bool) -> None:
    assert isinstance(Door(mine).check(SEAL, asked(theirs), NOW), Pass) is is_in


def test_bytes_of_a_path_that_are_no_text_are_turned_away_like_others() -> None:
    said = Said("GET", b"/ha/v1/state?\xff".decode("utf-8", "surrogateescape"))
    assert reason(Door(Keys(OLD)).check(said, asked(Keys(OLD)), NOW)).startswith("the proof does not fit")


@given(which=st.integers(0, 5), at=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_one_bit_of_anything_that_is_said_is_too_much(which: int, at: int, bit: int) -> None:
    headers = asked(Keys(OLD))
    parts = [SEAL.method.encode(), SEAL.path.encode(), SEAL.body] + [
        headers[name].encode() for name in (TIME, NONCE, PROOF)
    ]
    changed = bytearray(parts[which])
    changed[at % len(changed)] ^= 1 << bit
    parts[which] = bytes(changed)
    texts = [part.decode("latin-1") for part in parts]
    said = Said(texts[0], texts[1], parts[2])
    door = Door(Keys(OLD))
    found = door.check(said, dict(zip((TIME, NONCE, PROOF), texts[3:], strict=True)), NOW)
    assert isinstance(found, Turned) and found.proven is None and len(door) == 0


def test_where_one_part_ends_and_the_next_begins_is_proven_too() -> None:
    headers = Keys(OLD).ask(Said("GET", "/ab"), nonce(1), NOW)
    assert isinstance(Door(Keys(OLD)).check(Said("GE", "T/ab"), headers, NOW), Turned)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {TIME: "1", NONCE: "ab", PROOF: "0" * 64},
        {TIME: "-1", NONCE: "0" * 32, PROOF: "0" * 64},
        {TIME: "9" * 16, NONCE: "0" * 32, PROOF: "0" * 64},
        {TIME: "１", NONCE: "0" * 32, PROOF: "0" * 64},
        {TIME: "1", NONCE: "0" * 32, PROOF: "é" * 64},
    ],
)
def test_a_request_without_a_readable_proof_is_told_what_is_missing(headers: dict[str, str]) -> None:
    assert "cluster's secret" in reason(Door(Keys(OLD)).check(SEAL, headers, NOW))


@pytest.mark.parametrize(("off", "is_in"), [(WINDOW_MS, True), (-WINDOW_MS, True), (WINDOW_MS + 1, False)])
def test_a_request_of_another_time_is_told_ours_with_a_proof(off: int, is_in: bool) -> None:
    door = Door(Keys(OLD))
    found = door.check(SEAL, asked(Keys(OLD), at=NOW + off), NOW)
    assert isinstance(found, Pass) is is_in
    if isinstance(found, Turned):
        assert str(NOW) in found.reason and found.proven is not None and len(door) == 0


def test_a_full_table_refuses_and_forgets_nothing() -> None:
    door = Door(Keys(OLD), nonces_max=2)
    first = asked(Keys(OLD), number=1)
    assert isinstance(door.check(SEAL, first, NOW), Pass)
    assert isinstance(door.check(SEAL, asked(Keys(OLD), number=2), NOW), Pass)
    full = door.check(SEAL, asked(Keys(OLD), number=3), NOW)
    assert isinstance(full, Turned) and full.status == 429
    assert "before" in reason(door.check(SEAL, first, NOW))
    later = NOW + 2 * WINDOW_MS + 1
    assert isinstance(door.check(SEAL, asked(Keys(OLD), number=3, at=later), later), Pass)
    assert len(door) == 1


def test_who_does_not_know_the_secret_cannot_fill_the_table() -> None:
    door = Door(Keys(OLD), nonces_max=1)
    for number in range(5):
        assert isinstance(door.check(SEAL, asked(Keys(NEW), number=number), NOW), Turned)
    assert isinstance(door.check(SEAL, asked(Keys(OLD)), NOW), Pass)


@dataclass(frozen=True)
class Step:
    number: int
    wait_ms: int
    off_ms: int


steps = st.lists(
    st.builds(Step, st.integers(0, 4), st.integers(0, WINDOW_MS), st.integers(-2 * WINDOW_MS, 2 * WINDOW_MS)),
    max_size=60,
)


@given(steps)
def test_no_request_is_ever_taken_twice_however_late_it_comes_again(plan: list[Step]) -> None:
    """Requests are made with times of their own and each is sent again at every later moment."""
    door, now, made, taken = Door(Keys(OLD), nonces_max=30), NOW, [], set[str]()
    for count, step in enumerate(plan):
        now += step.wait_ms
        made.append(asked(Keys(OLD), number=count * 10 + step.number, at=now + step.off_ms))
        for headers in made[-8:]:
            if isinstance(door.check(SEAL, headers, now), Pass):
                assert headers[NONCE] not in taken
                taken.add(headers[NONCE])
        assert len(door) <= 30


@given(st.binary(max_size=40), st.integers(100, 599))
def test_an_answer_is_good_for_its_question_status_and_bytes_only(body: bytes, status: int) -> None:
    keys, good = Keys(OLD), prove_answer(OLD, nonce(1).hex(), status, body)
    assert keys.is_answer(nonce(1), status, body, good)
    assert not keys.is_answer(nonce(2), status, body, good)
    assert not keys.is_answer(nonce(1), status + 1, body, good)
    assert not keys.is_answer(nonce(1), status, body + b" ", good)
    assert not Keys(NEW).is_answer(nonce(1), status, body, good)
    assert not keys.is_answer(nonce(1), status, body, "é")


def test_a_request_is_no_answer() -> None:
    headers = asked(Keys(OLD))
    assert not Keys(OLD).is_answer(nonce(1), 200, SEAL.body, headers[PROOF])
