"""What Spark finds under the name `gantrymq`: it hands out readers, after it has checked what was asked for.

Made in a process of its own on the driver for every plan, and pickled into others; so it holds nothing but its options,
which are in Spark's hands before they are in ours (`options` says which of them are secret and how that is kept).
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from pyspark_gantrymq import columns
from pyspark_gantrymq.batch import BatchReader


class DefaultSource(DataSource):
    """Spark looks for it by this name."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "gantrymq"

    def schema(self) -> str:
        """All columns, for a query that names none."""
        return columns.ddl()

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        names = columns.chosen([(field.name, field.dataType.simpleString()) for field in schema.fields])
        return BatchReader(dict(self.options), names)
