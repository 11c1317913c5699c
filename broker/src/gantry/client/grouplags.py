"""The lag of groups on all brokers.

A broker lists the groups that have offsets on it, or members.  A group that is away while a topic gets another broker
has neither there.  So that broker is asked once more about each topic that the group reads on another one, and its
queues count whole: they would otherwise be missing, as if the group had nothing to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from gantry.client.requests import lag_requests
from gantry.client.requests.lag_requests import LagPage, QueueLag
from gantry.client.requests.question import Question
from gantry.model.names import is_retry_topic

Members = Mapping[int, str]
"""Addresses of a broker group, by id."""
Look = Callable[[Members, Question[LagPage]], Awaitable[LagPage]]


async def of_all(groups: Mapping[str, Members], look: Look, group: str, topic: str) -> list[QueueLag]:
    """Return the lag in every queue of these broker groups; `group`, `topic`: of these only, empty for all."""
    found = await asyncio.gather(*(_pages(name, members, look, group, topic) for name, members in groups.items()))
    read = {(one.group, one.queue.topic) for part in found for one in part if one.committed >= 0}
    for name, part in zip(groups, list(found), strict=True):
        known = {(one.group, one.queue.topic) for one in part}
        for owner, read_topic in sorted(read - known):
            if not is_retry_topic(read_topic):
                page = await look(groups[name], lag_requests.lag(name, owner, read_topic, 0, unbegun=True))
                found.append([one for one in page.queues if one.committed < 0])
    return [one for part in found for one in part]


async def _pages(name: str, members: Members, look: Look, group: str, topic: str) -> list[QueueLag]:
    found: list[QueueLag] = []
    following = 0
    while following >= 0:
        page = await look(members, lag_requests.lag(name, group, topic, following))
        found += page.queues
        following = page.following
    return found
