"""What a row costs on its way from a broker's answer into Spark's columns.

1024 records of 1 KiB with five properties, all seventeen columns: CPU of this process a row, the least of some
rounds, decoded at once (`vectors`) and one by one (`rows`).  No socket and no Spark takes part.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from gantry.leaves.properties import pack
from gantry.wire import record
from pyspark_gantrymq import rows
from pyspark_gantrymq.columns import COLUMNS
from pyspark_gantrymq.vectors import Pulled
from testkit.storedrun import Stored, run

_ROWS, _ROUNDS, _TIMES = 1024, 9, 10


def cost_us(decode: Callable[[], object]) -> float:
    """The least CPU a row."""
    took = []
    for _ in range(_ROUNDS):
        begun = time.process_time()
        for _ in range(_TIMES):
            decode()
        took.append((time.process_time() - begun) / _TIMES / _ROWS * 1e6)
    return min(took)


def decoding() -> list[dict[str, object]]:
    """Five properties, and those of a message that was sent in a batch: brokers put the batch's before its own."""
    names = tuple(COLUMNS)
    mine = {"KEYS": "k1", "TAGS": "t", "WAIT": "true", "colour": "red"}
    brokers = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster"}
    found = []
    for what in ("5 properties", "8 properties, of a batch"):
        stored = []
        for at in range(_ROWS):
            unique = {"UNIQ_KEY": f"7F0000010000{at:08d}"}
            own = pack(unique | mine)
            stored.append(Stored(b"x" * 1024, own if what[0] == "5" else pack(unique) + own + pack(brokers)))
        data = run(stored)
        at_once = cost_us(lambda data=data: Pulled(data, "broker-a").batch(names, _ROWS))
        singly = cost_us(lambda data=data: rows.one_by_one(record.messages(data, "broker-a"), names))
        figure = f"decoding a row of 1 KiB, 17 columns, {what}"
        note = f"one by one: {singly:.2f} us"
        found.append({"figure": figure, "found": f"{at_once:.2f} us CPU", "target": "<= 3.5", "note": note})
    return found
