from __future__ import annotations

from gantry.metadata.clients import ClientLimits, Clients, Consumption, GroupClient
from gantry.metadata.groups import Groups, GroupSettings
from gantry.metadata.notices import ChangeNotices
from gantry.model.subscription import GroupConfig, Subscription
from gantry.wire.codes import RequestCode
from testkit.fake_connection import FakeConnection
from testkit.memory_state import MemoryState
from testkit.simclock import SimClock


class Play:
    """One group, its consumers, and the notices they get."""

    def __init__(self, model: str = "CLUSTERING", config: GroupConfig | None = None) -> None:
        self.clock = SimClock()
        self.clients = Clients(ClientLimits())
        self.groups = Groups(MemoryState(), self.clock, GroupSettings())
        self.groups.put(config or GroupConfig("g"))
        self.notices = ChangeNotices(self.clients, self.groups, self.clock)
        self._consumption = Consumption("CONSUME_PASSIVELY", model, "CONSUME_FROM_LAST_OFFSET")

    def join(self) -> FakeConnection:
        connection = FakeConnection()
        member = GroupClient(f"client-{id(connection)}", 0, 479, self.clock.monotonic())
        self.clients.register_consumer(
            connection,  # type: ignore[arg-type]
            "g",
            member,
            self._consumption,
            [Subscription("T")],
        )
        return connection

    def pass_time(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)
        self.notices.flush(self.clock.monotonic())


def count(connection: FakeConnection) -> int:
    notices = connection.take()
    for notice in notices:
        assert notice.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        assert notice.is_oneway
        assert not notice.is_response
        assert notice.ext == {"consumerGroup": "g"}
    return len(notices)


def test_every_member_is_told_of_a_newcomer_the_newcomer_too() -> None:
    play = Play()
    first = play.join()
    assert count(first) == 1
    play.pass_time(1000)
    second = play.join()
    assert [count(first), count(second)] == [1, 1]


def test_a_departure_is_told_to_those_who_stay() -> None:
    play = Play()
    first, second = play.join(), play.join()
    play.pass_time(1000)
    play.pass_time(1000)
    count(first), count(second)
    play.clients.connection_closed(second)  # type: ignore[arg-type]
    assert [count(first), count(second)] == [1, 0]


def test_changes_in_quick_succession_are_told_at_once_and_then_together() -> None:
    play = Play()
    members = [play.join() for _ in range(100)]
    assert [count(member) for member in members] == [1] + [0] * 99
    play.pass_time(100)
    assert sum(count(member) for member in members) == 0
    play.pass_time(100)
    assert [count(member) for member in members] == [1] * 100
    play.pass_time(1000)
    assert sum(count(member) for member in members) == 0


def test_broadcasting_consumers_share_nothing_and_are_not_told() -> None:
    play = Play(model="BROADCASTING")
    assert count(play.join()) == 0


def test_a_group_that_wants_no_notices_gets_none() -> None:
    play = Play(config=GroupConfig("g", notify_enable=False))
    assert count(play.join()) == 0


def test_a_group_that_emptied_meanwhile_is_forgotten() -> None:
    play = Play()
    one, two = play.join(), play.join()
    play.clients.connection_closed(one)  # type: ignore[arg-type]
    play.clients.connection_closed(two)  # type: ignore[arg-type]
    play.pass_time(1000)
    assert count(two) == 0
    play.pass_time(1000)
    assert (play.notices._told_at, play.notices._owed) == ({}, set())
