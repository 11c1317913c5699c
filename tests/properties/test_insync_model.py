"""A master that loses acknowledgements, answers and slaves' disks: what it confirms, every electable copy has.

The register is honest, the way to it is not: a request may be carried out late, never, or without an answer.  Slaves
lose tails and come back as another incarnation; their old words may still arrive.  Anyone who the register names with
the incarnation that he has now could be made master at any moment, so he must have all that was confirmed.

Thousands of short walks from fixed seeds: a step costs microseconds, so plain chance sees more here than Hypothesis
does in the same time, and a planted fault is found in every run or in none.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from gantry.replication.insync import InSync
from gantry.replication.members import Member, SyncSet

ME = 0
SLAVES = (1, 2)
WALKS, STEPS = 4000, 40


class Group:
    """Three members and one mastership, whose master remembers nothing of what was confirmed before it."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.logs = {ME: 3} | {each: chance.randint(0, 3) for each in SLAVES}
        self.incarnations = {ME: 0, 1: 0, 2: 0}
        self.held: SyncSet = frozenset(Member(each, 0) for each in (ME, *chance.sample(SLAVES, chance.randint(0, 2))))
        self.earlier = min(self.logs[member.ordinal] for member in self.held)
        self.version = self.known_version = 0
        self.requests: list[tuple[int, SyncSet]] = []
        self.words: list[tuple[Member, int]] = []
        self.group = InSync(Member(ME, 0), self.held, 3, 0, chance.randint(1, 2))
        self.seen = 0
        self.steps: list[Callable[[], None]] = [
            self.a_producer_sends,
            self.a_slave_copies_and_says_so,
            self.a_slave_catches_up_and_is_heard,
            self.a_word_arrives,
            self.a_slave_loses_its_tail,
            self.a_slave_is_left_out,
            self.a_slave_is_taken_in,
            self.the_change_is_sent_again,
            self.a_request_arrives,
            self.the_master_renews,
            self.the_master_reads_that_something_changed,
        ]

    def walk(self) -> None:
        self.check()
        for _ in range(STEPS):
            self.chance.choice(self.steps)()
            self.check()

    def a_slave(self) -> int:
        return self.chance.choice(SLAVES)

    def member(self, ordinal: int) -> Member:
        return Member(ordinal, self.incarnations[ordinal])

    # What happens

    def a_producer_sends(self) -> None:
        self.logs[ME] += 1
        self.group.acknowledge(Member(ME, 0), self.logs[ME])

    def a_slave_copies_and_says_so(self) -> None:
        who = self.a_slave()
        self.logs[who] = min(self.logs[who] + 1, self.logs[ME])
        self.words.append((self.member(who), self.logs[who]))

    def a_slave_catches_up_and_is_heard(self) -> None:
        who = self.a_slave()
        self.logs[who] = self.logs[ME]
        self.group.acknowledge(self.member(who), self.logs[who])

    def a_word_arrives(self) -> None:
        if self.words:
            self.group.acknowledge(*self.chance.choice(self.words))

    def a_slave_loses_its_tail(self) -> None:
        who = self.a_slave()
        self.logs[who] = self.chance.randint(0, self.logs[who])
        self.incarnations[who] += 1

    def a_slave_is_left_out(self) -> None:
        who = self.a_slave()
        left = [self.group.shrink(member) for member in self.group.recorded if member.ordinal == who]
        if any(change is not None for change in left):
            self.the_change_is_sent_again()

    def a_slave_is_taken_in(self) -> None:
        if self.group.admit(self.member(self.a_slave())) is not None:
            self.the_change_is_sent_again()

    def the_change_is_sent_again(self) -> None:
        if self.group.change is not None:
            self.requests.append((self.known_version, self.group.change.target))

    def a_request_arrives(self) -> None:
        if not self.requests:
            return
        version, members = self.requests.pop(self.chance.randrange(len(self.requests)))
        if version != self.version:
            return
        assert len(members) >= min(len(self.held), self.group.min_in_sync), f"{members} is too small"
        self.held, self.version = members, version + 1
        if self.chance.random() < 0.5:
            self.known_version = self.version
            self.group.settle(members)

    def the_master_renews(self) -> None:
        self.version += 1
        self.known_version = self.version
        self.group.settle(self.held)

    def the_master_reads_that_something_changed(self) -> None:
        if self.version != self.known_version:
            self.known_version = self.version
            self.group.settle(self.held)

    # What must hold

    def check(self) -> None:
        assert self.group.confirmed >= self.seen, "confirmed went back"
        assert self.group.confirmed == self.seen or len(self.held) >= self.group.min_in_sync, "confirmed by too few"
        self.seen = self.group.confirmed
        assert self.held <= self.group.required, "the register may name somebody who is not asked"
        whole = max(self.group.confirmed, self.earlier)
        for member in self.held:
            if member == self.member(member.ordinal):
                assert self.logs[member.ordinal] >= whole, f"{member} has {self.logs[member.ordinal]} of {whole}"


def test_every_copy_that_may_be_elected_has_all_that_is_confirmed() -> None:
    for seed in range(WALKS):
        try:
            Group(Random(seed)).walk()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
