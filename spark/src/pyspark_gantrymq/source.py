"""What Spark finds under the name `gantrymq`: it hands out readers and writers, once it has checked what was asked.

Made in a process of its own on the driver for every plan, and pickled into others; so it holds nothing but its options,
which are in Spark's hands before they are in ours (`options` says what that means for secrets).
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from pyspark_gantrymq import columns, options
from pyspark_gantrymq.batch import BatchReader
from pyspark_gantrymq.options import check
from pyspark_gantrymq.sink import batch_writer, stream_writer
from pyspark_gantrymq.stream import StreamReader


class DefaultSource(DataSource):
    """Spark looks for it by this name, and makes one as soon as `load()` is called."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._properties = check(options)

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "gantrymq"

    def schema(self) -> str:
        """All columns, for a query that names none."""
        return columns.ddl(columns.of(self._properties))

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        return BatchReader(options.parse(self.options, is_stream=False), self._chosen(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """For `spark.readStream`."""
        return StreamReader(options.parse(self.options, is_stream=True), self._chosen(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """For `df.write`."""
        return batch_writer(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """For `df.writeStream`."""
        return stream_writer(dict(self.options), schema, overwrite)

    def _chosen(self, schema: StructType) -> tuple[str, ...]:
        fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        return columns.chosen(fields, self._properties)
