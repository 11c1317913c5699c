"""Turning messages that were read into rows for the sink: the same messages, under their own ids.

What RocketMQ writes into a message's properties on its way (delays, redeliveries, halves of transactions, the id) is
taken out, so that the copy goes its own way; the sink would refuse it.  Keys, tags, sharding key and id have columns of
their own.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as f

from gantry.model.message import RESERVED_PROPERTIES, SHARDING_KEY

_OURS = ("GANTRY_REPLAYS", "SPARK_TXN", "__STARTDELIVERTIME")
GONE = sorted({*RESERVED_PROPERTIES, *_OURS})


def properties(found: Column, *gone: str, **more: Column) -> Column:
    """Return a message's own properties without `gone`, and with `more`, which overrides them."""
    without = [*GONE, *gone, *more]
    left = f.map_filter(
        f.coalesce(found, f.create_map().cast("map<string,string>")),
        lambda name, text: ~name.isin(without) & (f.length(text) > 0),
    )
    if not more:
        return left
    added = f.create_map(*[part for name, text in more.items() for part in (f.lit(name), text.cast("string"))])
    return f.map_concat(left, added)


def sharding_key(found: Column) -> Column:
    """Return the sharding key of a message; null without one."""
    return found[SHARDING_KEY].alias("shardingKey")
