"""`make bench-spark`: the figures of the data source, into RESULTS-spark.md.

    PYTHONPATH=tests .venv-spark/bin/python tests/bench/sparkrun.py
        [--rounds N] [--only decoding,aggregate,latency,sink,backfill] [--folder DIR]
    PYTHONPATH=tests .venv-spark-4.2/bin/python tests/bench/sparkrun.py --only kafka

One broker and one Spark with two cores, on this machine, for all queries of a run: what counts are ratios within it.
Nothing here asserts: figures are for reading, on a machine that is shared and noisy.  Figures that a run does not
measure stay in the file as they were, each with its day.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyspark
from kafka4 import jars, kafka
from servers import running
from sparkbackfill import backfill
from sparkkafka import beside_kafka, enough_beside
from sparkqueries import Ground, Row, aggregate, enough, enough_little, fill, latency, sink
from sparkrows import decoding
from sparktuples import TupleSource
from sparkwriting import writing

from testkit import sparksession
from testkit.process import GantryProcess

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
_RESULTS = _HERE / "RESULTS-spark.md"
_KEPT = _HERE / "results-spark.json"
_BEGIN, _END = "<!-- figures -->\n", "<!-- end of figures -->\n"
_SERVER = _ROOT / ".venv/bin"
_QUERIES: dict[str, tuple[Callable[[Ground, str], list[Row]], int, int]] = {
    "aggregate": (aggregate, 2, enough()),
    "latency": (latency, 8, enough_little()),
    "sink": (sink, 8, 1),
}


def _machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.partition("\n")[0]
    python = f"Python {platform.python_version()}, PySpark {pyspark.__version__}, pyarrow {pyarrow.__version__}"
    return f"{os.cpu_count()} x {model}, Linux {platform.release()}, {python}, {java}"


def _with_queries(names: list[str], rounds: int, folder: Path) -> None:
    """The queries that share a broker and a Spark."""
    # Spark's planners and workers load the yardsticks from here.
    os.environ["PYTHONPATH"] = str(_HERE)
    python, answers = str(_SERVER / "python"), str(_HERE / "sparkanswering.py")
    with GantryProcess(folder / "broker", python=python) as process, running([python, answers]) as answering:
        assert answering.stdout is not None
        port = answering.stdout.readline().split()[1]
        nameserver = "{}:{}".format(*process.addresses["nameserver"])
        spark = sparksession.start(folder)
        try:
            spark.dataSource.register(TupleSource)
            ground = Ground(spark, nameserver, folder, rounds, f"127.0.0.1:{port}")
            for name in names:
                measure, queues, count = _QUERIES[name]
                command = [str(_SERVER / "gantry"), "topic", "create", name, "--queues", str(queues)]
                subprocess.run([*command, "--namesrv", nameserver], check=True, stdout=subprocess.DEVNULL)
                fill(nameserver, name, queues, count)
                _write(_loaded(name, lambda measure=measure, name=name: measure(ground, name)))
        finally:
            spark.stop()


def _beside_kafka(rounds: int, folder: Path) -> list[Row]:
    """Both brokers run all the time, so that their JVM and our process are warm; only one is used at a time."""
    python, topic = str(_SERVER / "python"), "beside"
    with GantryProcess(folder / "broker", python=python) as process, kafka(folder / "kafka", partitions=2) as other:
        nameserver = "{}:{}".format(*process.addresses["nameserver"])
        for name in (topic, f"{topic}-sunk"):
            command = [str(_SERVER / "gantry"), "topic", "create", name, "--queues", "2", "--namesrv", nameserver]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        fill(nameserver, topic, 2, enough_beside())
        spark = sparksession.start(folder, more={"spark.jars": jars("spark").replace(":", ",")})
        try:
            ground = Ground(spark, nameserver, folder, rounds)
            return beside_kafka(ground, topic, process.popen.pid, other)
        finally:
            spark.stop()


def _loaded(name: str, measure: Callable[[], list[Row]]) -> list[Row]:
    """The rows of a scenario, each with its day and the load that it ran under."""
    print(f"running {name} ...", file=sys.stderr, flush=True)
    rows = measure()
    when = datetime.datetime.now(datetime.UTC).date().isoformat()
    return [row | {"date": when, "load": f"{os.getloadavg()[0]:.1f}"} for row in rows]


def table(rows: list[Row]) -> str:
    """The rows in Markdown."""
    names = ("figure", "found", "target", "load", "date", "note")
    lines = ["| " + " | ".join(names) + " |", "|" + "-|" * len(names)]
    lines += ["| " + " | ".join(str(row.get(name, "")) for name in names) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _write(rows: list[Row]) -> None:
    """The table with what was measured renewed, kept and put into the document."""
    before = json.loads(_KEPT.read_text())["rows"] if _KEPT.exists() else []
    new = {str(row["figure"]): row for row in rows}
    every = [new.pop(row["figure"], row) for row in before] + list(new.values())
    _KEPT.write_text(json.dumps({"machine": _machine(), "rows": every}, indent=1) + "\n")
    head, _, rest = _RESULTS.read_text().partition(_BEGIN)
    text = f"{_machine()}\n\n{table(every)}"
    _RESULTS.write_text(f"{head}{_BEGIN}{text}{_END}{rest.partition(_END)[2]}")


def main() -> None:
    """Parse the arguments, run, write and print."""
    usual = ["decoding", *_QUERIES, "backfill"]
    every = [*usual, "kafka"]  # which needs a Spark for which there is Kafka's source
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(usual))
    parser.add_argument("--folder", type=Path, help="where the stores lie; default: below tests/bench")
    options = parser.parse_args()
    only = options.only.split(",")
    if set(only) - set(every):
        parser.error(f"--only knows {', '.join(every)}")
    with tempfile.TemporaryDirectory(dir=options.folder or _HERE) as folder:
        if "decoding" in only:
            _write(_loaded("decoding", lambda: decoding() + writing()))
        queries = [name for name in _QUERIES if name in only]
        if queries:
            _with_queries(queries, options.rounds, Path(folder))
        if "kafka" in only:
            _write(_loaded("kafka", lambda: _beside_kafka(options.rounds, Path(folder))))
        if "backfill" in only:
            _write(_loaded("backfill", lambda: backfill(Path(folder), options.rounds)))
    print(_RESULTS.read_text())


if __name__ == "__main__":
    main()
