"""What a producer does with the tables, as steps: the stub inside of its business, the place after the send.

A message gets its id before it is sent, so that every copy has the same one.  `OutgoingStub` is what the row has; the
message that a resend makes of the row is the same (`StubContents.message`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from gantry.client.outgoing import Copy, prepare, sharding
from gantry.guarantee import rules
from gantry.guarantee.dialects import MARIADB, MYSQL, SQLITE, Dialect
from gantry.guarantee.statements import Statements
from gantry.guarantee.steps import Query, Steps, in_order
from gantry.model.message import SHARDING_KEY, Message

_MARK = "gantry_block"


@dataclass(frozen=True, slots=True)
class OutgoingStub:
    """A message with its id, and when it is sent again if no group says that it has it (epoch ms)."""

    message_id: str
    message: Message
    key: str = ""  # messages with one key keep their order
    groups: tuple[str, ...] = ()  # empty: those that are declared for the topic


@dataclass(frozen=True, slots=True)
class StoredPlace:
    """Where a copy of a message stands."""

    message_id: str
    copy_topic: str
    broker: str
    queue_id: int
    queue_offset: int


def write_stub(say: Statements, stub: OutgoingStub, now_ms: int, due_ms: int, changed_by: str) -> Steps[None]:
    """Write the stub and a delivery for each group, in the transaction of the business.

    ValueError as of `columns_of`; the database's IntegrityError names `declare_the_consumer_groups_of_this_topic` when
    no group is declared.
    """
    times = {"now_ms": now_ms, "next_resend_at_ms": due_ms, "changed_by": changed_by}
    yield from in_order(say.stub_for if stub.groups else say.stub, {**columns_of(stub), **times})


def mark(dialect: Dialect, is_begun: bool) -> Steps[bool]:
    """Begin a producer's block; return whether `unmark` can tell at its end that its transaction was given up inside.

    MySQL and MariaDB roll a whole transaction back after a deadlock (1213), and with `innodb_rollback_on_timeout` after
    a lock timeout, SQLite when its disk is full; the next statement begins another one.  Who caught the error would
    commit a part.  A savepoint does not survive that.  PostgreSQL refuses every further statement instead.  On SQLite a
    savepoint would begin the transaction itself, so nothing is told of one that begins inside of the block.
    """
    is_marked = dialect in (MYSQL, MARIADB) or (dialect is SQLITE and is_begun)
    if is_marked:
        yield Query(f"SAVEPOINT {_MARK}", {})
    return is_marked


def unmark() -> Steps[None]:
    """End the block, as the last statement before the commit; the driver's error when its transaction is gone."""
    yield Query(f"RELEASE SAVEPOINT {_MARK}", {})


def groups_of(groups: Sequence[str]) -> tuple[str, ...]:
    """Return the groups that a message names itself; TypeError for a single text, whose letters would be groups."""
    if isinstance(groups, str):
        raise TypeError(f"groups={groups!r} is a text; pass a sequence of names, as groups=({groups!r},)")
    return tuple(groups)


def columns_of(stub: OutgoingStub) -> dict[str, object]:
    """Return what the row has of the message; ValueError for one that the broker or a database would refuse."""
    message = stub.message
    if message.is_delayed:
        raise ValueError(f"{message.topic}: a delayed message has no due time that a resend could compare with")
    # All that the broker would refuse for ever; the size and the topic too.
    prepare(message, Copy(stub.message_id), 0, compress_over=None, more=sharding(stub.key))
    if message.flag:
        raise ValueError(f"{message.topic}: the stub does not keep a flag, and this message has {message.flag}")
    pairs = message.all_properties()  # raises for what a broker refuses
    keys, tags = pairs.pop("KEYS", ""), pairs.pop("TAGS", "")
    if stub.key:
        pairs[SHARDING_KEY] = stub.key
    properties = json.dumps(pairs, ensure_ascii=False)
    rules.check_texts(
        message_id=stub.message_id, topic=message.topic, message_keys=keys, tags=tags, properties=properties
    )
    for group in stub.groups:
        rules.check_texts(consumer_group=group)
    columns: dict[str, object] = {
        "message_id": stub.message_id,
        "topic": message.topic,
        "body": bytes(message.body),
        "message_keys": keys,
        "tags": tags,
        "properties": properties,
    }
    if stub.groups:
        columns["consumer_groups"] = json.dumps(sorted(set(stub.groups)))
    return columns


def write_places(say: Statements, places: Iterable[StoredPlace]) -> Steps[None]:
    """Store where messages stand, in one statement, in a transaction by itself; those sent again since stay."""
    # In the order of ids, so that two processes never wait for each other.
    rows = [asdict(place) for place in sorted(places, key=lambda place: place.message_id)]
    if rows:
        yield Query(say.place_all, {"places": json.dumps(rows)})


def committed(say: Statements, message_id: str) -> Steps[str]:
    """Return the status of a stub, '' without one: what the checker of a half message asks."""
    answer = yield Query(say.is_committed, {"message_id": message_id})
    return str(answer.rows[0][0]) if answer.rows else ""


def withdraw(say: Statements, message_id: str, now_ms: int, changed_by: str) -> Steps[bool]:
    """Withdraw a message; True: no group had its effect.  False: too late, and no group's delivery was changed.

    Too late for one group is too late for all, also when the caller commits all the same.  The savepoint stays: SQLite
    would commit at its release where it began the transaction.
    """
    values = {"message_id": message_id, "now_ms": now_ms, "changed_by": changed_by}
    yield Query("SAVEPOINT gantry_withdrawal", {})
    if (yield from in_order(say.void, values)) == 1:
        return True
    yield Query("ROLLBACK TO SAVEPOINT gantry_withdrawal", {})
    return False


def declare(say: Statements, topic: str, group: str, resend_by: str, now_ms: int, changed_by: str) -> Steps[None]:
    """Declare that a group has to handle a topic's messages from now on; see `statements` for `resend_by`."""
    rules.check_texts(topic=topic, consumer_group=group, changed_by=changed_by)
    values = {"topic": topic, "consumer_group": group, "resend_by": resend_by, "now_ms": now_ms}
    yield Query(say.declare, {**values, "changed_by": changed_by})


def message_of(row: Mapping[str, object]) -> tuple[Message, str]:
    """Return the message of a stub's row and its key; ValueError when somebody else wrote what is no message.

    row: topic, body, message_keys, tags, properties, as the statement `missing` returns them.
    """
    properties = json.loads(_text(row["properties"]) or "{}")
    if not isinstance(properties, dict) or not all(isinstance(value, str) for value in properties.values()):
        raise ValueError("the properties of the stub are no JSON object of texts")
    key = properties.pop(SHARDING_KEY, "")
    body = row["body"]
    if not isinstance(body, (bytes, bytearray, memoryview)):
        raise ValueError(f"the body of the stub is {type(body).__name__}, not bytes")
    keys: Sequence[str] = _text(row["message_keys"]).split()
    return Message(_text(row["topic"]), bytes(body), _text(row["tags"]), tuple(keys), properties), key


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
