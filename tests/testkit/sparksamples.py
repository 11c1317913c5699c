"""The sample messages of spark/samples as a DataFrame with the columns of the source, and tables as text."""

from __future__ import annotations

import contextlib
import io
from typing import TYPE_CHECKING

from testkit.sources import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLDER = ROOT / "spark/samples"
_COLUMNS = (
    "topic string, brokerName string, queueId int, queueOffset bigint, msgId string, keys string, tags string, "
    "body string, properties map<string,string>, bornTimestamp timestamp, storeTimestamp timestamp, reconsumeTimes int"
)


def sample(spark: SparkSession, name: str) -> DataFrame:
    """The messages of spark/samples/NAME.jsonl, in their order."""
    from pyspark.sql import functions as f

    text = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    lines = spark.createDataFrame([(line,) for line in text], "line string")
    parsed = lines.select(f.from_json("line", _COLUMNS).alias("one")).select("one.*")
    return parsed.withColumns({"body": f.col("body").cast("binary"), "flag": f.lit(0)})


def picture(table: DataFrame) -> str:
    """What `show()` prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        table.show(100, truncate=False)
    return out.getvalue().strip() + "\n"
