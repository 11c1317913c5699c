from __future__ import annotations

from gantry.pop.book import OpenLease
from gantry.pop.owners import RENEWAL_MS_MAX, RENEWED_MS, SILENCE_S_MAX, Owners
from gantry.pop.records import LeaseKey, LeaseRecord

POP_MS = 1_000_000


def lease(owner: str = "client", group: str = "g") -> OpenLease:
    return OpenLease(LeaseRecord(LeaseKey(group, "T", 0, 5, POP_MS), POP_MS + 60_000, (5, 6), owner), 3)


def owners() -> Owners:
    made = Owners()
    made.begin(now=0.0)
    return made


def test_a_lease_is_renewed_while_its_owner_says_that_it_lives() -> None:
    made = owners()
    made.keep("client", ["g"], 100.0)
    assert made.renewed_until(lease(), 100.0 + SILENCE_S_MAX, POP_MS + 60_000) == POP_MS + 60_000 + RENEWED_MS
    assert made.renewed_until(lease(), 100.1 + SILENCE_S_MAX, POP_MS + 60_000) is None


def test_only_leases_of_the_groups_that_the_owner_names_are_renewed() -> None:
    made = owners()
    made.keep("client", ["g", "h"], 100.0)
    assert made.renewed_until(lease(group="h"), 101.0, POP_MS) is not None
    made.keep("client", ["g"], 102.0)
    assert made.renewed_until(lease(group="h"), 103.0, POP_MS) is None
    assert made.renewed_until(lease(owner="another"), 103.0, POP_MS) is None
    assert made.renewed_until(lease(owner=""), 103.0, POP_MS) is None


def test_after_a_start_every_owner_counts_as_alive_until_it_could_say_so() -> None:
    made = Owners()
    made.begin(now=500.0)
    assert made.renewed_until(lease(), 500.0, POP_MS) is not None
    assert made.renewed_until(lease(), 500.0 + SILENCE_S_MAX, POP_MS) is None
    assert made.renewed_until(lease(owner=""), 500.0, POP_MS) is None


def test_a_lease_is_not_renewed_for_ever() -> None:
    made = owners()
    made.keep("client", ["g"], 100.0)
    last_ms = POP_MS + RENEWAL_MS_MAX
    assert made.renewed_until(lease(), 100.0, last_ms - 1) == last_ms
    assert made.renewed_until(lease(), 100.0, last_ms) is None


def test_an_owner_that_ended_is_not_alive() -> None:
    made = owners()
    made.keep("client", ["g", "h"], 100.0)
    made.end("client", "g")
    assert made.renewed_until(lease(), 101.0, POP_MS) is None
    assert made.renewed_until(lease(group="h"), 101.0, POP_MS) is not None
    made.end("client")
    assert len(made) == 0


def test_the_table_is_bounded_and_silent_owners_leave_it() -> None:
    made = Owners(owners_max=2, groups_max=2)
    assert made.keep("a", ["g"], 100.0) is None
    assert made.keep("b", ["g"], 110.0) is None
    assert "2 owners" in str(made.keep("c", ["g"], 111.0))
    assert "3 groups" in str(made.keep("a", ["g", "h", "i"], 112.0))
    assert made.keep("a", ["g"], 120.0) is None
    assert made.keep("c", ["g"], 141.0) is None, "b was silent for longer than an owner may"
    assert len(made) == 2
    assert made.is_alive("a", "g", 141.0)
