"""Whatever registers in whatever order: id 0 never belongs to an epoch below one that the group has shown."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from gantry.errors import Refusal
from gantry.model.topic import DataVersion, TopicConfig
from gantry.nameserver.table import BrokerRegistration, RouteTable

TOPICS = {name: TopicConfig(name) for name in ("T", "TBW102")}

LINK = object()
registrations = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 4), st.booleans()), min_size=1, max_size=30
)


def news(broker_id: int, member: int, epoch: int) -> BrokerRegistration:
    address = f"10.0.0.{member}:10911"
    return BrokerRegistration("C", "b", broker_id, address, address, TOPICS, DataVersion(1, epoch, 0))


@given(registrations)
@example([(0, 1, 1, False), (1, 0, 1, False), (1, 1, 0, False)])  # the master's late registration as a slave
@example([(2, 1, 1, False), (1, 0, 2, False), (1, 1, 1, False)])  # a slave wants an id that a later epoch has
def test_the_master_that_is_named_is_one_of_the_highest_epoch(drawn: list[tuple[int, int, int, bool]]) -> None:
    table = RouteTable()
    highest = 0
    for broker_id, member, epoch, leaves in drawn:
        said = news(broker_id, member, epoch)
        if leaves:
            table.unregister("C", "b", said.address, LINK)
        else:
            assert not isinstance(table.register(said, LINK, 0), Refusal)
            highest = max(highest, epoch)
        group = table.brokers().get("b")
        if group is None:
            highest = 0
            continue
        assert len(set(group.addresses.values())) == len(group.addresses), "an address under two ids"
        known = {address: table.version_of("C", address) for address in group.addresses.values()}
        assert None not in known.values(), "an address that would never expire"
        if (master := group.addresses.get(0)) is not None:
            version = known[master]
            assert version is not None and version.state_version == highest


@given(registrations)
def test_without_epochs_the_last_one_to_say_so_is_the_master(drawn: list[tuple[int, int, int, bool]]) -> None:
    table = RouteTable()
    for broker_id, member, _, _ in drawn:
        said = news(broker_id, member, 0)
        table.register(said, LINK, 0)
        assert table.brokers()["b"].addresses[broker_id] == said.address
