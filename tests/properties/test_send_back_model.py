"""Attempts and delays against a model: any failures in any order, groups and consumers with numbers of their own.

The model knows of each message how often it was brought again and where it is; the broker has to agree after every
step, also after restarts in between.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gantry.leaves.records import Record
from gantry.model.subscription import GroupConfig
from testkit.sendbackplay import DLQ, GROUP, RETRY, SendBackPlay, said

_LADDER_FIRST = 3


@dataclass
class Known:
    """One message in the model."""

    times: int = 0
    topic: str = "T"
    copies: int = 0  # in retry and dead-letter topic


class SendBackModel(RuleBasedStateMachine):
    """Any consumer's failures."""

    @initialize(times_max=st.integers(0, 5), retry_queues=st.integers(1, 3))
    def begin(self, times_max: int, retry_queues: int) -> None:
        """A group of its own numbers."""
        group = GroupConfig(GROUP, retry_times_max=times_max, retry_queues=retry_queues)
        self.play = SendBackPlay(group=group)
        self.times_max = times_max
        self.known: dict[str, Known] = {}
        self.levels: list[int] = []

    @rule(queue_id=st.integers(0, 3))
    def deliver(self, queue_id: int) -> None:
        """A new message."""
        self.known[said(self.play.message(queue_id=queue_id))["UNIQ_KEY"]] = Known()

    @rule(
        pick=st.integers(0, 100),
        level=st.one_of(st.just(0), st.integers(-1, 18)),
        own_max=st.one_of(st.none(), st.integers(-1, 4)),
    )
    def fail(self, pick: int, level: int, own_max: int | None) -> None:
        """A consumer cannot handle the newest copy of one of them."""
        alive = [key for key, known in self.known.items() if known.topic != DLQ]
        if not alive:
            return
        key = alive[pick % len(alive)]
        known = self.known[key]
        ext = {} if own_max is None else {"maxReconsumeTimes": own_max}
        assert self.play.send_back(self._newest(key), level, originTopic="T", **ext) == 0
        times_max = self.times_max if own_max is None or own_max < 0 else own_max
        if level < 0 or known.times >= times_max:
            known.topic = DLQ
        else:
            known.topic = RETRY
            self.levels.append(level or _LADDER_FIRST + known.times)
        known.times += 1
        known.copies += 1

    @rule()
    def restart(self) -> None:
        """The broker forgets nothing: everything stands in the records."""
        self.play.store.close()
        self.play.background.close()
        self.play.open()

    @invariant()
    def agrees(self) -> None:
        """Where everything is, how often it came, and with which delays."""
        if not hasattr(self, "play"):
            return
        assert self.play.levels == self.levels
        found = [*self.play.records(RETRY), *self.play.records(DLQ)]
        for key, known in self.known.items():
            copies = [record for record in found if said(record)["UNIQ_KEY"] == key]
            assert sorted(record.reconsume_times for record in copies) == list(range(1, known.copies + 1))
            newest = self._newest(key)
            assert (newest.topic, newest.reconsume_times) == (known.topic, known.times)
            assert all(said(record)["RETRY_TOPIC"] == "T" for record in copies)
            assert len({said(record)["ORIGIN_MESSAGE_ID"] for record in copies}) <= 1

    def _newest(self, key: str) -> Record:
        records = [*self.play.records("T"), *self.play.records(RETRY), *self.play.records(DLQ)]
        return max((one for one in records if said(one)["UNIQ_KEY"] == key), key=lambda one: one.reconsume_times)


TestSendBackModel = SendBackModel.TestCase
TestSendBackModel.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
