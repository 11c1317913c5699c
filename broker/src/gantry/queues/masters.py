"""What queues and topics ask and tell masters: what each has under a name, changes, and whether a new name is known.

Both are topics on all masters.  An answer by broker group is `Found`: a topic's configuration, or None where its master
does not have the topic.  A master that does not answer is looked up again before the next question, because another
one may lead its group.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping
from typing import TypeVar

from gantry.client.requests import admin_requests, questions
from gantry.client.requests.question import Question
from gantry.errors import GantryError, RefusedError
from gantry.gateway.brokers import Brokers
from gantry.model.topic import TopicConfig
from gantry.queues.faults import invalid
from gantry.wire.codes import ResponseCode

T = TypeVar("T")
Found = Mapping[str, TopicConfig | None]

_ASK_S = 3.0
_ROUTE_S, _ROUTE_PAUSE_S = 3.0, 0.05


class Masters:
    """Questions to the masters of a cluster."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    async def look(self, name: str, masters: Mapping[str, str]) -> dict[str, TopicConfig | None]:
        """Ask these masters for a topic; the error of one that does not answer."""
        names = sorted(masters)
        asked = [self.config(masters[one], name) for one in names]
        return dict(zip(names, await asyncio.gather(*asked), strict=True))

    async def config(self, address: str, name: str) -> TopicConfig | None:
        """Ask one master for a topic; None when it does not have it, and the errors of requests."""
        try:
            return await self.ask(address, admin_requests.topic_config(name))
        except RefusedError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            raise

    async def ask(self, address: str, question: Question[T]) -> T:
        """Ask or change something at one server; the errors of requests."""
        try:
            return await self._brokers.session.ask(address, question, _ASK_S)
        except RefusedError:
            raise
        except GantryError:
            self._brokers.doubt_masters()
            raise

    async def routed(self, name: str, found: Found) -> None:
        """Wait until the name servers know a new topic: what is sent at once would not find it otherwise."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _ROUTE_S
        while loop.time() < deadline:
            route, _ = await self._brokers.session.look_up(questions.route(name))
            if route is not None and {data.broker_name for data in route.queues} >= set(found):
                break
            await asyncio.sleep(_ROUTE_PAUSE_S)
        self._brokers.routes.doubt(name)


def paged(table: Mapping[str, T], prefix: str, marker: str, count: int) -> tuple[list[T], str]:
    """Return entries in the order of their names, after a marker; and the marker of the next page, or nothing."""
    try:
        after = base64.urlsafe_b64decode(marker.encode()).decode()
    except (binascii.Error, UnicodeError) as error:
        raise invalid("x-mns-marker is not the NextMarker of a page") from error
    names = sorted(name for name in table if name.startswith(prefix) and name > after)
    chosen = names[:count]
    following = base64.urlsafe_b64encode(chosen[-1].encode()).decode() if len(names) > count else ""
    return [table[name] for name in chosen], following
