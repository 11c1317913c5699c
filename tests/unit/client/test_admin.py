"""Whom an administrator asks: masters for what changes something, anyone who answers for the rest."""

from __future__ import annotations

import asyncio

import pytest

from gantry.client.admin import Admin
from gantry.errors import UnreachableError
from gantry.wire.codes import RequestCode
from testkit.onequeue import MASTER, SLAVE, Group
from testkit.patience import HANG_S
from testkit.scripted import body

GROUPS = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
NO_GROUPS = body({"subscriptionGroupTable": {}, "dataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 0}})


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "not known yet"])
async def test_what_is_only_looked_at_a_slave_tells_while_the_master_is_away(is_known: bool) -> None:
    async with asyncio.timeout(HANG_S), Group(30) as group, Admin(nameserver=group.nameserver) as admin:
        group.answers[MASTER, GROUPS] = group.answers[SLAVE, GROUPS] = NO_GROUPS
        assert await admin.groups() == {}
        assert not group.asked(SLAVE, GROUPS)
        await group.lose_master(is_known)
        assert await admin.groups() == {}
        assert len(group.asked(SLAVE, GROUPS)) == 1
        assert [one.max_offset for one in await admin.progress("g", "T")] == [30]


async def test_what_changes_something_is_for_masters_only() -> None:
    async with asyncio.timeout(HANG_S), Group(30) as group, Admin(nameserver=group.nameserver) as admin:
        await group.lose_master(is_known=True)
        with pytest.raises(UnreachableError, match="no master anywhere is registered"):
            await admin.create_topic("T")
        assert not group.asked(SLAVE, RequestCode.UPDATE_AND_CREATE_TOPIC)
