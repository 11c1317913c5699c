"""A sink's driver and writers by hand, and what must be true in the end: of every batch exactly one try, each row once.

A writer sends the halves of a part and waits for each; a driver (`BlockingSinks`, or its single steps) decides and
ends.  Both may die anywhere.  Anyone who comes next writes the batch again, under another name, as Spark does.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from functools import partial

from gantry.client.requests.sink_requests import SinkBatch
from gantry.leaves import properties
from gantry.wire.codes import ResponseCode
from testkit.pairplay import until
from testkit.rawclient import RawClient, send_fields

SINK, TOPIC = "ledger", "orders"


class Batches:
    """What was written, by batch and part, and how many batches are finished."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.finished = 0
        self._names = (f"0-{number}" for number in itertools.count())

    def batch(self, home: str) -> SinkBatch:
        """The one that is worked on."""
        return SinkBatch(SINK, self.finished + 1, home)

    def write(self, client: RawClient, one: SinkBatch, rows: int) -> str:
        """A part, every half of which is acknowledged."""
        part = next(self._names)
        for row in range(rows):
            ext = send_fields(TOPIC, 0)
            ext["a"], ext["f"] = "spark", "4"
            pairs = {
                "UNIQ_KEY": f"{one.batch}/{part}/{row}/{rows}",
                "TRAN_MSG": "true",
                "PGROUP": "spark",
                "SPARK_TXN": f"{one.sink}/{one.batch}/{part}/{one.home}",
            }
            ext["i"] = properties.pack(pairs).decode()
            until(partial(_is_taken, client, ext), "the half of a row is taken")
        return part

    def check(self, delivered: list[str]) -> None:
        """Every finished batch is there, with all rows of one part, and nothing else is."""
        again = [key for key, count in Counter(delivered).items() if count > 1]
        assert not again, f"delivered more than once: {again[:5]}"
        found: dict[int, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        sizes: dict[str, int] = {}
        for key in delivered:
            batch, part, row, rows = key.split("/")
            found[int(batch)][part].add(int(row))
            sizes[part] = int(rows)
        assert sorted(found) == list(range(1, self.finished + 1)), "a batch is missing, or there is one too many"
        for batch, parts in found.items():
            assert len(parts) == 1, f"batch {batch} has rows of several tries: {sorted(parts)}"
            for part, there in parts.items():
                assert len(there) == sizes[part], f"batch {batch} has {len(there)} of {sizes[part]} rows of {part}"


def _is_taken(client: RawClient, ext: dict[str, str]) -> bool:
    """A new master takes nothing before it has confirmed what it found; what it refuses is not stored."""
    answer = client.call(310, ext, b"row")
    assert answer.code in (0, ResponseCode.SERVICE_NOT_AVAILABLE), answer.remark
    return answer.code == 0
