"""The columns of a message, and how a user's choice of them is checked.

Without `.schema(...)` a query gets all of them in this order; with it, any of them in any order.  Spark does not tell a
Python data source which columns a query uses, so who leaves out `body` and `properties` by hand saves their cost.

    queueOffset       the message's place in its queue; dense, so count(*) and max - min + 1 agree
    msgId             the id that its producer gave it, the same for every copy; else the broker's own
    bornTimestamp     by the producer's clock; storeTimestamp by the broker's
    transactionId     of a message that was sent in a transaction

Pure: types are names of Spark's SQL (`StructField.dataType.simpleString()`).
"""

from __future__ import annotations

from collections.abc import Iterable

COLUMNS: dict[str, str] = {
    "topic": "string",
    "brokerName": "string",
    "queueId": "int",
    "queueOffset": "bigint",
    "msgId": "string",
    "keys": "string",
    "tags": "string",
    "body": "binary",
    "properties": "map<string,string>",
    "bornTimestamp": "timestamp",
    "storeTimestamp": "timestamp",
    "bornHost": "string",
    "reconsumeTimes": "int",
    "flag": "int",
    "sysFlag": "int",
    "commitLogOffset": "bigint",
    "transactionId": "string",
}


def ddl(names: Iterable[str] = COLUMNS) -> str:
    """A schema of these columns as Spark's SQL writes it."""
    return ", ".join([f"{name} {COLUMNS[name]}" for name in names])


def chosen(fields: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The columns of a user's schema, given as (name, type); ValueError saying which one is wrong."""
    names: list[str] = []
    for name, kind in fields:
        if name not in COLUMNS:
            raise ValueError(f"schema: no column {name!r}; there are {', '.join(COLUMNS)}")
        if kind != COLUMNS[name]:
            raise ValueError(f"schema: column {name} is {kind}; it has to be {COLUMNS[name]}")
        if name in names:
            raise ValueError(f"schema: column {name} stands there twice")
        names.append(name)
    return tuple(names)
