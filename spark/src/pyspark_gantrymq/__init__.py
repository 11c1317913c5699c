"""GantryMQ and RocketMQ as a data source of Apache Spark: `spark.readStream.format("gantrymq")`.

Every Spark session that uses any Python data source imports all modules called `pyspark_*` and asks each for a
`DefaultSource`; so the source registers itself, and this module may cost nothing: the class is looked up on demand.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_gantrymq.listener import GantryMQOffsetListener
    from pyspark_gantrymq.source import DefaultSource

__all__ = ["DefaultSource", "GantryMQOffsetListener"]


def __getattr__(name: str) -> object:
    """Import DefaultSource or GantryMQOffsetListener at its first use; AttributeError for any other name."""
    if name == "DefaultSource":
        from pyspark_gantrymq.source import DefaultSource

        return DefaultSource
    if name == "GantryMQOffsetListener":
        from pyspark_gantrymq.listener import GantryMQOffsetListener

        return GantryMQOffsetListener
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
