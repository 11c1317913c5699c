"""The columns of a message, and how a user's choice of them is checked.

Without `.schema(...)` a query gets all of them in this order; with it, any of them in any order.  Spark does not tell a
Python data source which columns a query uses, so leaving out `body` and `properties` by hand saves their cost.

    queueOffset       the message's place in its queue; dense, so count(*) and max - min + 1 agree
    msgId             the id that its producer gave it, the same for every copy; else the broker's own
    bornTimestamp     by the producer's clock; storeTimestamp by the broker's
    transactionId     of a message that was sent in a transaction
    properties        a map; with propertiesFormat=raw the text that brokers store, `name 1 value 2 name 1 value 2`,
                      which costs less, and Spark takes it apart: str_to_map(properties, '\\u0002', '\\u0001')

Pure: types are names of Spark's SQL (`StructField.dataType.simpleString()`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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

MAP, RAW, NONE = "map", "raw", "none"
FORMATS = (MAP, RAW, NONE)
RAW_PROPERTIES = "properties (raw)"  # our internal name of the column `properties` in that format


def of(properties: str) -> dict[str, str]:
    """Return all columns with their types, given the format of properties."""
    if properties == NONE:
        return {name: kind for name, kind in COLUMNS.items() if name != "properties"}
    return COLUMNS if properties == MAP else {**COLUMNS, "properties": "string"}


def ddl(columns: Mapping[str, str] = COLUMNS) -> str:
    """A schema of these columns as Spark's SQL writes it."""
    return ", ".join([f"{name} {kind}" for name, kind in columns.items()])


def chosen(fields: Iterable[tuple[str, str]], properties: str = MAP) -> tuple[str, ...]:
    """The columns of a user's schema, given as (name, type); ValueError saying which one is wrong."""
    columns = of(properties)
    names: list[str] = []
    for name, kind in fields:
        if name not in columns:
            raise ValueError(f"schema: no column {name!r}; there are {', '.join(columns)}")
        if kind != columns[name]:
            raise ValueError(f"schema: column {name} is {kind}; it has to be {columns[name]}")
        if name in names:
            raise ValueError(f"schema: column {name} stands there twice")
        names.append(name)
    return tuple([RAW_PROPERTIES if name == "properties" and properties == RAW else name for name in names])
