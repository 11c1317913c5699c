"""Which visit is closed for a new one."""

from __future__ import annotations

import asyncio
from typing import Any

from gantry.transport.visits import Visit, Visits


class Transport:
    def __init__(self, host: str) -> None:
        self.host = host
        self.unread = 0
        self.is_aborted = False

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return self.host, 1

    def get_write_buffer_size(self) -> int:
        return self.unread

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_aborted


def come(visits: Visits, host: str = "10.0.0.1", is_heard: bool = True) -> tuple[Visit, Transport]:
    visit, transport = Visit(visits), Transport(host)
    over: Any = transport
    visit.connection_made(over)
    if is_heard:
        visit.data_received(b"GET / HTTP/1.1\r\n\r\n")
    return visit, transport


async def end(visits: Visits) -> None:
    for visit in list(visits.open):
        visit.connection_lost(None)
    await asyncio.sleep(0)


def room_for(most: int) -> Visits:
    visits = Visits(lambda visit: None, 60.0)
    visits.most = most
    return visits


async def test_the_host_with_most_visits_loses_one_whatever_the_others_have_sent() -> None:
    visits = room_for(4)
    _, lonely = come(visits, "10.0.0.2", is_heard=False)
    many = [come(visits)[1] for _ in range(10)]
    assert not lonely.is_aborted
    assert [one.is_aborted for one in many] == [True] * 7 + [False] * 3, "the oldest of equals"
    await end(visits)


async def test_of_one_host_a_silent_visit_goes_first_and_then_one_that_does_not_read() -> None:
    visits = room_for(3)
    (_, first), (_, deaf), (_, silent) = come(visits), come(visits), come(visits, is_heard=False)
    deaf.unread = 1
    come(visits)
    assert (first.is_aborted, deaf.is_aborted, silent.is_aborted) == (False, False, True)
    come(visits)
    assert (first.is_aborted, deaf.is_aborted) == (False, True)
    come(visits)
    assert first.is_aborted
    await end(visits)


async def test_who_has_proven_who_it_is_stays_and_a_door_full_of_those_is_shut() -> None:
    visits = room_for(2)
    proven = [come(visits)[1] for _ in range(2)]
    for one in proven:
        transport: Any = one
        visits.keep(transport)
    visits.keep(None)
    _, late = come(visits, is_heard=False)
    assert late.is_aborted and not any(one.is_aborted for one in proven)
    await end(visits)
