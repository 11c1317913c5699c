"""What a row costs on its way from a broker's answer into Spark's columns: `make bench-spark`.

1024 records of 1 KiB with five properties, all seventeen columns: CPU of this process a row, the least of some
rounds, decoded at once (`vectors`) and one by one (`rows`).  No socket and no Spark takes part.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

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


def main() -> None:
    """Measure and print."""
    names = tuple(COLUMNS)
    pairs = {"KEYS": "k1", "TAGS": "t", "WAIT": "true", "colour": "red"}
    stored = [Stored(b"x" * 1024, pack({"UNIQ_KEY": f"7F0000010000{at:08d}"} | pairs)) for at in range(_ROWS)]
    data = run(stored)
    at_once = cost_us(lambda: Pulled(data, "broker-a").batch(names, _ROWS))
    singly = cost_us(lambda: rows.one_by_one(record.messages(data, "broker-a"), names))
    print("| row of 1 KiB, 17 columns | CPU us | target |\n|-|-|-|")
    print(f"| decoded at once | {at_once:.2f} | <= 3.5 |\n| one by one | {singly:.2f} | yardstick |")


if __name__ == "__main__":
    main()
