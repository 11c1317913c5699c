"""Several groups of brokers and the drivers of sinks, without sockets: `BlockingSinks` on `TransactionPlay`s.

    play = GroupsPlay("a", "b")
    part = play.write("s", 0, rows=2)                  # halves in every group
    play.driver().commit(play.batch("s", 0), [part], play.names)

The session is `blockingsinks.BlockingRequester`: a request reaches the broker's own handlers.  Groups may have no
master (`leaderless`) or be unknown to the name server (`lost`); a driver may die or lose a reply at any request
(`chance`).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import TypeVar

from gantry.client.blockingsinks import BlockingSinks
from gantry.client.requests.question import Question
from gantry.client.requests.sink_requests import SinkBatch
from gantry.errors import OutcomeUnknownError, UnreachableError
from gantry.wire import bodies
from gantry.wire.codes import RequestCode
from gantry.wire.command import reply
from testkit.transactionplay import TransactionPlay

T = TypeVar("T")
NAME_SERVER = "ns:1"


class DiedError(Exception):
    """The driver's process ended."""


class GroupsPlay:
    """The groups, and the session through which drivers ask them."""

    def __init__(self, *names: str, home: str = "") -> None:
        self.names = names
        self.home = home or names[0]
        self.groups = {name: TransactionPlay(group=name) for name in names}
        self.leaderless: set[str] = set()
        self.lost: set[str] = set()
        self.chance: random.Random | None = None
        self.dies_after = ""  # an action of DECIDE_BATCH, answered by the broker and unheard by the driver
        self.asked: list[tuple[str, int]] = []
        self._parts = (f"0-p{number}" for number in itertools.count())

    # What a driver stands on

    @property
    def nameservers(self) -> Sequence[str]:
        return [NAME_SERVER]

    def ask(self, address: str, question: Question[T], timeout_s: float = 1.0) -> T:
        if address == NAME_SERVER:
            return question.read(reply(question.command, body=self._cluster()))
        assert question.command.code != RequestCode.GET_BROKER_CLUSTER_INFO
        self._may_die()
        self.asked.append((address, question.command.code))
        answer = self.groups[address].serve(question.command)
        if self.dies_after and question.command.ext.get("action") == self.dies_after:
            raise DiedError
        self._may_die()
        if self.chance is not None and self.chance.random() < 0.02:
            raise OutcomeUnknownError(f"{address}: no answer")
        return question.read(answer)

    def close(self) -> None:
        """Nothing is open."""

    def driver(self, within_s: float = 0.0) -> BlockingSinks:
        """A new process; what fails is not tried again unless there is time for it."""
        return BlockingSinks(NAME_SERVER, within_s, self)

    # What happens

    def batch(self, sink: str, number: int, home: str = "") -> SinkBatch:
        """One batch of a sink, which is at home where the play says."""
        return SinkBatch(sink, number, home or self.home)

    def write(self, sink: str, number: int, rows: int = 2, groups: Sequence[str] = (), home: str = "") -> str:
        """A part of a batch, with so many halves in each group; its name."""
        part = next(self._parts)
        for group in groups or self.names:
            for row in range(rows):
                key = f"{sink}/{number}/{part}/{group}/{row}"
                home_of_it = home or self.home
                half = self.groups[group].half(b"row", key, SPARK_TXN=f"{sink}/{number}/{part}/{home_of_it}")
                assert half.code == 0
        return part

    def pass_time(self, ms: int) -> None:
        """In every group, with a look at all halves."""
        for group in self.groups.values():
            group.run_pass(ms)
            group.flush()

    def seen(self, group: str = "") -> list[str]:
        """Keys of the rows that consumers can get, of one group or of all."""
        return sorted(key for name in ([group] if group else self.names) for _, key in self.groups[name].visible())

    def _may_die(self) -> None:
        if self.chance is not None and self.chance.random() < 0.03:
            raise DiedError

    def _cluster(self) -> bytes:
        known = [name for name in self.names if name not in self.lost]
        if not known:
            raise UnreachableError("no group is registered")
        table = {
            name: {
                "cluster": "c",
                "brokerName": name,
                "brokerAddrs": {"1": f"{name}-slave"} if name in self.leaderless else {"0": name},
            }
            for name in known
        }
        return bodies.dumps({"brokerAddrTable": table, "clusterAddrTable": {"c": known}})
