"""The data source that Spark finds under the name `gantrymq`: it checks the options and returns readers and writers.

It is made in a process of its own on the driver for every plan, and pickled into others; so it holds nothing but its
options.  Spark has these before us (`options` says what that means for secrets).
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
    """The class that Spark looks up by this name, and makes an instance of when `load()` is called."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._properties = check(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format, for `spark.read.format(...)`."""
        return "gantrymq"

    def schema(self) -> str:
        """Return the schema with all columns, for a query that names none."""
        return columns.ddl(columns.of(self._properties))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of `spark.read`; ValueError for wrong options or columns."""
        return BatchReader(options.parse(self.options, is_stream=False), self._chosen(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """Return the reader of `spark.readStream`; ValueError for wrong options or columns."""
        return StreamReader(options.parse(self.options, is_stream=True), self._chosen(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of `df.write`; ValueError for wrong options or columns."""
        return batch_writer(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Return the writer of `df.writeStream`; ValueError for wrong options or columns."""
        return stream_writer(dict(self.options), schema, overwrite)

    def _chosen(self, schema: StructType) -> tuple[str, ...]:
        fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        return columns.chosen(fields, self._properties)
