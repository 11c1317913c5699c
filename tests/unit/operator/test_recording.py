"""Events are bounded: the same text is one that is counted, and a flood of others is cut."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from gantry_operator.api.brokercluster import Key
from gantry_operator.events import News
from gantry_operator.kube import KubeError
from gantry_operator.recording import BURST, LATEST_S, REFILL_S, Recorder

Document = dict[str, Any]
KEY = Key("messaging", "orders")
BEGIN = datetime(2026, 11, 21, 10, tzinfo=UTC)


class Kept:
    """Events by path, and how often they were written."""

    def __init__(self) -> None:
        self.found: dict[str, Document] = {}
        self.writes = 0
        self.is_away = False

    async def create(self, document: Document) -> bool:
        self._write()
        return self.found.setdefault(document["metadata"]["name"], document) is document

    async def merge(self, path: str, change: Document) -> None:
        self._write()
        self.found[path.rsplit("/", 1)[-1]] |= change

    def _write(self) -> None:
        if self.is_away:
            raise KubeError("POST", 503, "as the test wants it")
        self.writes += 1


class Told:
    """A recorder and its clock."""

    def __init__(self) -> None:
        self.kept, self.now_s = Kept(), 0.0
        self.recorder = Recorder(self.kept)

    def tell(self, *texts: str) -> None:
        now = (BEGIN + timedelta(seconds=self.now_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
        news = [News("Warning", "NotConfigured", each) for each in texts]
        asyncio.run(self.recorder.record(KEY, "u-1", news, now))


def test_what_happens_again_is_one_event_whose_count_is_written_ever_more_seldom() -> None:
    told = Told()
    for _ in range(1800):
        told.tell("no")
        told.now_s += 2
    (event,) = told.kept.found.values()
    assert told.kept.writes <= 13 and 1800 - event["count"] <= LATEST_S / 2
    assert event["firstTimestamp"] == "2026-11-21T10:00:00Z" < event["lastTimestamp"]
    told.now_s += 3601
    told.tell("no")
    assert len(told.kept.found) == 2, "after an hour of silence it is another one"


def test_a_flood_of_different_texts_is_cut_and_goes_on_slowly() -> None:
    told = Told()
    told.tell(*(f"no {number}" for number in range(2 * BURST)))
    assert told.kept.writes == BURST
    told.now_s += 10 * REFILL_S
    told.tell(*(f"and {number}" for number in range(BURST)))
    assert told.kept.writes == BURST + 10


def test_an_event_that_cannot_be_written_stops_nothing() -> None:
    told = Told()
    told.kept.is_away = True
    told.tell("no", "never")
    told.kept.is_away = False
    told.tell("yes")
    assert [each["message"] for each in told.kept.found.values()] == ["yes"]
