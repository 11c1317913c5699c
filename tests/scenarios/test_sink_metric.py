"""What /metrics of a real broker says of halves that no batch of a sink has decided about."""

from __future__ import annotations

import random
import re
import urllib.request
from pathlib import Path

from gantry.client.blockingsinks import BlockingSinks
from testkit.batchledger import SINK, Batches
from testkit.patience import HANG_S
from testkit.process import GantryProcess
from testkit.rawclient import RawClient
from testkit.sinktopic import until


def scraped(process: GantryProcess, name: str) -> float:
    """The value of a series without labels of its own."""
    host, port = process.addresses["http"]
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=HANG_S) as page:
        (value,) = re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", page.read().decode(), re.MULTILINE)
    return float(value)


def says(process: GantryProcess, halves: int) -> None:
    """Until so many wait, and the oldest has an age if one does; a page may be some moments old."""

    def is_so() -> bool:
        age_s = scraped(process, "gantry_sink_undecided_oldest_age_seconds")
        return scraped(process, "gantry_sink_undecided_halves") == halves and bool(halves) == (age_s > 0)

    until(is_so, f"{halves} halves are said to be undecided")


def test_undecided_halves_are_counted_until_their_batch_is_decided(tmp_path: Path) -> None:
    batches = Batches(random.Random(1))
    with GantryProcess(tmp_path / "data") as process, RawClient(process.broker) as client:
        host, port = process.addresses["nameserver"]
        with BlockingSinks(f"{host}:{port}") as sinks:
            one = batches.batch(sinks.home_of(SINK))
            says(process, 0)
            part, loser = batches.write(client, one, 7), batches.write(client, one, 3)
            says(process, 10)
            sinks.abort(one, [loser])
            says(process, 7)
            sinks.commit(one, [part], [one.home])
            says(process, 0)
