"""Every statement of the guarantee, in the order of a message's life.

The invariant that consumers keep: the log row, `confirm` and the effect are one transaction, and the effect is carried
out only if `log` inserted a row and the delivery is open (`rules.may_have_effect`).  Otherwise the row that was
inserted is marked as one without an effect (`refuse`): a later copy must not confirm what never happened.  Then a group
has one effect of a message, no matter who delivers it how often, and whatever happens to the answer of a COMMIT.

A delivery, one message for one consumer group, has one of five states:

    open        not confirmed: sent again when all five CONDITIONS hold
    confirmed   its effect is there, or a person said so
    void        withdrawn by the producer before any group had its effect: no effect any more
    closed      given up by a person: neither sent again, nor an effect if a copy still comes
    legacy      confirmed by version 1 for some other group: never sent again, an effect when a copy comes

A message is sent again to one group at a time: by that group's own retry topic (`resend_by` is 'retry'; 'pop': its
retry topic for POP), or, for groups that read only the topic, by the topic ('topic').  So a delivery holds the place of
the copy that its group will read, and the fourth condition compares places within that copy's own topic.  A delivery
without a place was perhaps never sent; it is sent again when it is due, as safely as any other.

Every open delivery that stays due is listed for a person sooner or later, in one list: `stuck` (arrived long ago, not
confirmed), `exhausted` (not arrived, sent as often as allowed) or `overdue` (not arrived, due for long: its group has
not passed its place, no broker takes it, or no resend ran). `unsettled` are effects outside of the database whose
outcome is unknown. `rearm` lets one be sent again whatever its place and its log row say.

`tell_after_ms` is 0, or when a claim to tell a person ends, or since when a delivery is due that no broker takes.

`log` is decided by its count of rows: 1 means new.  PostgreSQL and SQLite count 0 for a message that is there, MySQL
and MariaDB 2, because their drivers disagree about what an unchanged row counts.  So compare with 1, nothing else.

Not promised: anything about a log row that was deleted by hand.  `forget` deletes only what no open delivery and no
queue's greatest offset needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gantry.guarantee.dialects import MARIADB, MYSQL, POSTGRESQL, STYLES, Dialect, rendered
from gantry.guarantee.housekeeping import BACKWARDS, forgetting

_GREATEST = f"""(
        SELECT l.queue_offset FROM guarantee_log l
        WHERE l.consumer_group = d.consumer_group AND l.topic = d.copy_topic
          AND l.broker = d.broker AND l.queue_id = d.queue_id
        {BACKWARDS})"""
_CONSUMED_TO = """(
        SELECT p.consumed_to FROM guarantee_progress p
        WHERE p.consumer_group = d.consumer_group AND p.topic = d.copy_topic
          AND p.broker = d.broker AND p.queue_id = d.queue_id)"""
_NOT_LOGGED = """NOT EXISTS (
        SELECT 1 FROM guarantee_log l
        WHERE l.consumer_group = d.consumer_group AND l.message_id = d.message_id)"""
# Not an EXISTS: MySQL and MariaDB would begin with all old rows of the log, and not with what is due.
_LOGGED_AT = """(
        SELECT l.received_at_ms FROM guarantee_log l
        WHERE l.consumer_group = d.consumer_group AND l.message_id = d.message_id)"""
_NO_BACKLOG = (
    f"(d.queue_offset IS NULL OR d.is_rearmed = 1 OR d.queue_offset < {_GREATEST}\n"
    f"    OR d.queue_offset < {_CONSUMED_TO})"
)

# When a message is sent again to a group: all five.
CONDITIONS = {
    "unconfirmed": "d.state = 'open'",
    "may be sent again": "d.resends - d.resends_before < :resends_max",
    "due": "d.next_resend_at_ms <= :now_ms",
    "no backlog": _NO_BACKLOG,
    "not arrived": f"(d.is_rearmed = 1 OR {_NOT_LOGGED})",
}
_OPEN, _DUE = CONDITIONS["unconfirmed"], CONDITIONS["due"]
_EXHAUSTED = ("d.resends - d.resends_before >= :resends_max", CONDITIONS["not arrived"])
# Or logged by a clock that was as far ahead.
_STUCK = ("d.is_rearmed = 0", f"({_LOGGED_AT} < :before_ms\n    OR {_LOGGED_AT} - :now_ms + :before_ms > :now_ms)")
_LATE = "(d.next_resend_at_ms <= :before_ms OR (d.tell_after_ms > 0 AND d.tell_after_ms <= :before_ms))"
_OVERDUE = (_LATE, CONDITIONS["may be sent again"], CONDITIONS["not arrived"])
_UNTOLD = ("d.told_at_ms IS NULL", "d.tell_after_ms <= :now_ms")

# What a resend needs: `resends` for the guards of `claim` and `moved`, `attempts` for the backoff, the last four for
# `postpone`.
MISSING_COLUMNS = (
    "message_id", "consumer_group", "resend_by", "resends", "attempts",
    "topic", "body", "message_keys", "tags", "properties", "is_rearmed", "next_resend_at_ms", "told_at_ms",
    "tell_after_ms",
)  # fmt: skip
_MISSING_FIELDS = """d.message_id, d.consumer_group, d.resend_by, d.resends, d.resends - d.resends_before AS attempts,
    s.topic, s.body, s.message_keys, s.tags, s.properties, d.is_rearmed, d.next_resend_at_ms, d.told_at_ms,
    d.tell_after_ms"""
# What a person sees of a delivery; no bodies.
DELIVERY_COLUMNS = (
    "message_id", "consumer_group", "state", "topic", "message_keys", "resends", "attempts", "next_resend_at_ms",
    "copy_topic", "broker", "queue_id", "queue_offset", "begun_at_ms", "told_at_ms", "created_at_ms", "changed_at_ms",
    "changed_by",
)  # fmt: skip
_DELIVERY_FIELDS = """d.message_id, d.consumer_group, d.state, s.topic, s.message_keys, d.resends,
    d.resends - d.resends_before AS attempts, d.next_resend_at_ms, d.copy_topic, d.broker, d.queue_id, d.queue_offset,
    d.begun_at_ms, d.told_at_ms, d.created_at_ms, d.changed_at_ms, d.changed_by"""
LOG_COLUMNS = (
    "consumer_group", "message_id", "topic", "broker", "queue_id", "queue_offset", "received_at_ms", "effect", "owner",
    "owner_until_ms",
)  # fmt: skip
_STUB_COLUMNS = "message_id, topic, body, message_keys, tags, properties"
_LOG_PLACE = "consumer_group, message_id, topic, broker, queue_id, queue_offset, received_at_ms"
_BY = "changed_at_ms = :now_ms, changed_by = :changed_by"
_THIS = "message_id = :message_id AND consumer_group = :consumer_group"
_PLACE = "copy_topic = :copy_topic, broker = :broker, queue_id = :queue_id, queue_offset = :queue_offset"
_SET = "UPDATE guarantee_delivery\nSET "
_SET_LOG = "UPDATE guarantee_log\nSET "


@dataclass(frozen=True, slots=True)
class Statements:
    """All statements; each text names its parameters.

    `changed_by` is who does it: a service, a worker, a person.  Tuples are run in their order, in one transaction, with
    the same parameters.
    """

    version: str  # of the tables, and whether rows of version 1 are left to be moved; before `create` it fails
    clock: str  # the database's, in epoch milliseconds
    idle_limit: tuple[str, ...]  # before and after other statements: the database ends a transaction that stands still
    # Groups.
    declare: str  # a group that has to handle the messages of a topic from now on, and how it gets a resend
    undeclare: str  # it has not to, from now on; open deliveries stay
    declared: str  # all: topic, consumer_group, resend_by
    # The producer.
    stub: tuple[str, ...]  # in the transaction of its business; the last counts the groups; none declared: it fails
    stub_for: tuple[str, ...]  # the same for the groups of a JSON array :consumer_groups instead of declared ones
    place: str  # after the send: where the broker stored it; nothing for groups to which it was sent again
    place_all: str  # the same for many, from a JSON array :places of objects, in a transaction by itself
    is_committed: str  # the checker of a transactional message: a row with the status, or none
    void: tuple[str, ...]  # withdraw: the last changes 1 row: COMMIT; 0: some group had its effect: ROLLBACK
    # The consumer, effect in the database.
    log: str  # before the effect: 1 row: new; anything else: it is there already
    look: str  # what `log` found there: effect, owner, owner_until_ms
    settled: str  # reads only: effect, and the state of the delivery (NULL: none here)
    confirm: str  # before the effect in its transaction, or after it: 1 row, or 0: ask `verdict`
    verdict: str  # status of the stub and state of the delivery (rules.may_have_effect); no row: no stub here
    revert: str  # in the transaction of `confirm`, when the effect was refused and undone
    refuse: str  # the log row stays without an effect: with `revert`, or when `verdict` forbids it
    # The consumer, effect outside of the database.
    log_begun: str  # as `log`, with effect 'processing' by :owner until :owner_until_ms
    begin: str  # in its transaction: too late for `void` from now on; 1 row, or 0: ask `verdict`
    extend: str  # the owner needs longer, until a later time than before; 0 rows: it is the owner no more
    finish: str  # the effect is there, by :owner; then `confirm`
    suspect: str  # the owner's time is over: its effect is 'unknown' until the hook was asked
    take: str  # the hook said that nothing happened: :owner begins in place of :former_owner
    release: str  # the effect failed for certain: the log row goes, the message is delivered again
    # Resends.
    progress: str  # what the broker says that a group has consumed of a queue; never goes back
    missing: str  # deliveries for which all CONDITIONS hold: MISSING_COLUMNS
    free: str  # as `missing`; on PostgreSQL locked for this transaction and without what others have locked
    free_but: str  # as `free`, without the topics of a JSON array :topics
    claim: str  # before it is sent again: 1 row; 0: another process does it, or it is confirmed
    postpone: str  # after a claim, when no broker took the message: the attempt does not count; with what was read
    copies: str  # topics of a group's due deliveries, `rows_max` at most, NULL without a place; no row: nothing is due
    moved: str  # after it was sent again for the `resends`-th time: its place; 0: sent once more since
    # For a person: DELIVERY_COLUMNS of one group.
    exhausted: str  # due, and sent as often as it may be
    stuck: str  # logged before `before_ms`, and not confirmed
    overdue: str  # due since `before_ms`, not seen by the group, and neither sent again nor exhausted
    exhausted_untold: str  # those of which nobody was told yet
    stuck_untold: str
    overdue_untold: str
    in_state: str  # all of a :state
    unsettled: str  # LOG_COLUMNS: effects outside of the database whose owner's time is over
    tell: str  # 1 row: this process tells a person now, and nobody else before :tell_after_ms
    told: str  # a person was told
    rearm: str  # by a person: send it again, as often as a new one
    close: str  # by a person: give up
    confirm_by_hand: str  # by a person: its effect is there
    unrefuse: str  # with `rearm`: a copy that comes has its effect although an earlier one was refused
    clear: str  # by a person, with `rearm`: the effect whose outcome is unknown did not happen
    show_stub: str  # topic, message_keys, tags, properties, status, groups_expected, created_at_ms, changed_*, bytes
    show_deliveries: str  # DELIVERY_COLUMNS
    show_log: str  # LOG_COLUMNS
    backlog: str  # of each group: open deliveries, the time of the oldest, how many are due
    totals: str  # of each group and state: how many; reads the whole table
    # Housekeeping.
    logged_group: str  # the next group with log rows behind `after`, NULL behind the last one
    forget: str  # log rows received before `before_ms` that nothing above needs, FORGOTTEN_MAX at a time
    finished: str  # ids of stubs made before `before_ms` without an open delivery
    forget_stub: tuple[str, ...]  # one of them, with its deliveries


def statements(dialect: Dialect, style: str = "") -> Statements:
    """Return every statement for this database, in this parameter style (default: that of its usual driver).

    With `style="named"` the texts are those of SQLAlchemy's text(); for other styles pass them through
    `dialects.positional`.
    """
    if style not in ("", *STYLES):
        raise ValueError(f"parameter style {style!r}: there are {', '.join(STYLES)}; others by dialects.positional")
    texts = {**_producing(dialect), **_consuming(dialect), **_resending(dialect), **_showing(dialect), **forgetting()}
    said = style or dialect.style

    def of(value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        return rendered(value, said) if isinstance(value, str) else tuple(rendered(each, said) for each in value)

    return Statements(**{name: of(value) for name, value in texts.items()})  # type: ignore[arg-type]


def deliveries_where(conditions: Iterable[str], fields: str = _MISSING_FIELDS) -> str:
    """The deliveries (as `d`, stubs as `s`) of a group for which all of these hold, those due longest first."""
    where = "\n  AND ".join(("d.consumer_group = :consumer_group", *conditions))
    return (
        f"SELECT {fields}\nFROM guarantee_delivery d\nJOIN guarantee_stub s ON s.message_id = d.message_id\n"
        f"WHERE {where}\nORDER BY d.next_resend_at_ms, d.message_id\nLIMIT :rows_max"
    )


def _producing(dialect: Dialect) -> dict[str, str | tuple[str, ...]]:
    declared = "guarantee_group g WHERE g.topic = :topic"
    way = """COALESCE((SELECT r.resend_by FROM guarantee_group r
    WHERE r.topic = :topic AND r.consumer_group = g.consumer_group), 'retry')"""
    placed = "resends = 0 OR queue_offset IS NULL"
    if dialect in (MYSQL, MARIADB):
        columns = ("copy_topic", "broker", "queue_id", "queue_offset")
        values = ", ".join(f"d.{each} = p.{each}" for each in columns)
        place_all = (
            f"UPDATE guarantee_delivery d JOIN {dialect.places} ON d.message_id = p.message_id\n"
            f"SET {values}\nWHERE d.resends = 0 OR d.queue_offset IS NULL"
        )
    else:
        values = ", ".join(f"{each} = p.{each}" for each in ("copy_topic", "broker", "queue_id", "queue_offset"))
        place_all = (
            f"UPDATE guarantee_delivery AS d\nSET {values}\nFROM {dialect.places}\n"
            "WHERE d.message_id = p.message_id AND (d.resends = 0 OR d.queue_offset IS NULL)"
        )
    upsert = "resend_by = :resend_by, changed_at_ms = :now_ms, changed_by = :changed_by"
    conflict = (
        f"ON DUPLICATE KEY UPDATE {upsert}"
        if dialect in (MYSQL, MARIADB)
        else f"ON CONFLICT (topic, consumer_group) DO UPDATE SET {upsert}"
    )
    return {
        "version": "SELECT version, unfinished FROM message_guarantee",
        "clock": f"SELECT {dialect.now_ms}",
        "idle_limit": dialect.idle_limit,
        "declare": "INSERT INTO guarantee_group (topic, consumer_group, resend_by, changed_at_ms, changed_by)\n"
        f"VALUES (:topic, :consumer_group, :resend_by, :now_ms, :changed_by)\n{conflict}",
        "undeclare": "DELETE FROM guarantee_group\nWHERE topic = :topic AND consumer_group = :consumer_group",
        "declared": "SELECT topic, consumer_group, resend_by FROM guarantee_group\nORDER BY topic, consumer_group",
        "stub": _stub(dialect, f"(SELECT COUNT(*) FROM {declared})", declared, "g.resend_by"),
        "stub_for": _stub(dialect, dialect.groups_count, dialect.groups, way),
        "place": f"{_SET}{_PLACE}\nWHERE message_id = :message_id AND ({placed})",
        "place_all": place_all,
        "is_committed": "SELECT status FROM guarantee_stub WHERE message_id = :message_id",
        "void": (
            # Closed ones too: a person may rearm them.
            f"{_SET}state = 'void', {_BY}\n"
            "WHERE message_id = :message_id AND state IN ('open', 'closed') AND begun_at_ms IS NULL",
            f"UPDATE guarantee_stub\nSET status = 'void', {_BY}\nWHERE message_id = :message_id AND status = 'open'\n"
            "  AND NOT EXISTS (SELECT 1 FROM guarantee_delivery d\n"
            "    WHERE d.message_id = :message_id AND d.state <> 'void')",
        ),
    }


def _stub(dialect: Dialect, count: str, groups: str, way: str) -> tuple[str, ...]:
    """One statement on PostgreSQL, because each costs the producer a round trip; two elsewhere."""
    stub = (
        f"INSERT INTO guarantee_stub ({_STUB_COLUMNS}, status,\n"
        "    groups_expected, created_at_ms, changed_at_ms, changed_by)\n"
        f"VALUES (:{_STUB_COLUMNS.replace(', ', ', :')}, 'open',\n    {count}, :now_ms, :now_ms, :changed_by)"
    )
    deliveries = (
        "INSERT INTO guarantee_delivery (message_id, consumer_group, state, resend_by, next_resend_at_ms,\n"
        "    created_at_ms, changed_at_ms, changed_by)\n"
        f"SELECT :message_id, g.consumer_group, 'open', {way}, {dialect.due_ms}, :now_ms, :now_ms, :changed_by\n"
        f"FROM {groups}"
    )
    return (f"WITH stub AS (\n{stub}\n)\n{deliveries}",) if dialect is POSTGRESQL else (stub, deliveries)


def _consuming(dialect: Dialect) -> dict[str, str | tuple[str, ...]]:
    log = f"INSERT INTO guarantee_log ({_LOG_PLACE}{{more}})\nVALUES (:{_LOG_PLACE.replace(', ', ', :')}{{values}})\n"
    log += dialect.on_conflict
    is_owner = f"{_THIS} AND owner = :owner"
    return {
        "log": log.format(more="", values=""),
        "look": f"SELECT effect, owner, owner_until_ms FROM guarantee_log WHERE {_THIS}{dialect.share_lock}",
        "settled": "SELECT l.effect, d.state FROM guarantee_log l\nLEFT JOIN guarantee_delivery d\n"
        "    ON d.message_id = l.message_id AND d.consumer_group = l.consumer_group\n"
        "WHERE l.message_id = :message_id AND l.consumer_group = :consumer_group",
        # Closed while an effect outside of the database was under way: what happened counts.
        "confirm": f"{_SET}state = 'confirmed', {_BY}\n"
        f"WHERE {_THIS} AND (state IN ('open', 'legacy') OR (state = 'closed' AND begun_at_ms IS NOT NULL))",
        "verdict": "SELECT s.status, d.state FROM guarantee_stub s\nLEFT JOIN guarantee_delivery d\n"
        "    ON d.message_id = s.message_id AND d.consumer_group = :consumer_group\n"
        f"WHERE s.message_id = :message_id{dialect.share_lock}",
        "revert": f"{_SET}state = CASE WHEN EXISTS (SELECT 1 FROM guarantee_stub s\n"
        f"    WHERE s.message_id = :message_id AND s.status = 'legacy') THEN 'legacy' ELSE 'open' END, {_BY}\n"
        f"WHERE {_THIS} AND state = 'confirmed'",
        "refuse": f"{_SET_LOG}effect = 'refused'\nWHERE {_THIS}",
        "log_begun": log.format(
            more=", effect, owner, owner_until_ms", values=", 'processing', :owner, :owner_until_ms"
        ),
        "begin": f"{_SET}begun_at_ms = :now_ms, {_BY}\nWHERE {_THIS} AND state IN ('open', 'legacy')",
        "extend": f"{_SET_LOG}owner_until_ms = :owner_until_ms\nWHERE {is_owner} AND effect = 'processing'",
        "finish": f"{_SET_LOG}effect = 'done'\nWHERE {is_owner} AND effect IN ('processing', 'unknown')",
        "suspect": f"{_SET_LOG}effect = 'unknown'\n"
        f"WHERE {is_owner} AND effect = 'processing' AND owner_until_ms <= :now_ms",
        "take": f"{_SET_LOG}effect = 'processing', owner = :owner, owner_until_ms = :owner_until_ms\n"
        f"WHERE {_THIS} AND owner = :former_owner AND effect = 'unknown'",
        "release": f"DELETE FROM guarantee_log\nWHERE {is_owner} AND effect = 'processing'",
    }


def _resending(dialect: Dialect) -> dict[str, str | tuple[str, ...]]:
    keys = "consumer_group, topic, broker, queue_id"
    missing = deliveries_where(CONDITIONS.values())
    listed = dialect.groups.replace(":consumer_groups", ":topics")
    others = f"s.topic NOT IN (SELECT g.consumer_group FROM {listed})"
    later = """CASE WHEN guarantee_progress.consumed_to < :consumed_to THEN :consumed_to
    ELSE guarantee_progress.consumed_to END"""
    conflict = "ON DUPLICATE KEY UPDATE" if dialect in (MYSQL, MARIADB) else f"ON CONFLICT ({keys}) DO UPDATE SET"
    return {
        "progress": f"INSERT INTO guarantee_progress ({keys}, consumed_to)\n"
        f"VALUES (:{keys.replace(', ', ', :')}, :consumed_to)\n{conflict} consumed_to = {later}",
        "missing": missing,
        "free": missing + dialect.skip_locked,
        "free_but": deliveries_where((*CONDITIONS.values(), others)) + dialect.skip_locked,
        # A delivery that is sent again is a new case: people were told of what it was before.
        "claim": f"{_SET}resends = resends + 1, next_resend_at_ms = :next_resend_at_ms, is_rearmed = 0,\n"
        f"    told_at_ms = NULL, tell_after_ms = 0, {_BY}\n"
        f"WHERE {_THIS} AND resends = :resends AND state = 'open'",
        "postpone": f"{_SET}resends_before = resends_before + 1, next_resend_at_ms = :next_resend_at_ms,\n"
        "    is_rearmed = :is_rearmed, told_at_ms = COALESCE(told_at_ms, :told_at_ms),\n"
        "    tell_after_ms = CASE WHEN tell_after_ms = 0 THEN :tell_after_ms ELSE tell_after_ms END,\n"
        f"    {_BY}\nWHERE {_THIS} AND resends = :resends AND state = 'open'",
        "copies": "SELECT DISTINCT d.copy_topic FROM guarantee_delivery d\n"
        f"WHERE d.consumer_group = :consumer_group AND {_OPEN} AND {_DUE}\nLIMIT :rows_max",
        "moved": f"{_SET}{_PLACE}\nWHERE {_THIS} AND resends = :resends",
    }


def _showing(dialect: Dialect) -> dict[str, str | tuple[str, ...]]:
    def people(*conditions: str) -> str:
        return deliveries_where(conditions, _DELIVERY_FIELDS)

    log_fields = ", ".join(f"l.{each}" for each in LOG_COLUMNS)
    size = "OCTET_LENGTH(body)" if dialect.name != "sqlite" else "LENGTH(body)"
    return {
        "exhausted": people(_OPEN, _DUE, *_EXHAUSTED),
        "stuck": people(_OPEN, _DUE, *_STUCK),
        "overdue": people(_OPEN, _DUE, *_OVERDUE),
        "exhausted_untold": people(_OPEN, _DUE, *_EXHAUSTED, *_UNTOLD),
        "stuck_untold": people(_OPEN, _DUE, *_STUCK, *_UNTOLD),
        "overdue_untold": people(_OPEN, _DUE, *_OVERDUE, *_UNTOLD),
        "in_state": people("d.state = :state"),
        "unsettled": f"SELECT {log_fields}\nFROM guarantee_log l\nWHERE l.consumer_group = :consumer_group"
        " AND l.effect <> 'done' AND l.effect IN ('processing', 'unknown')\n  AND l.owner_until_ms <= :now_ms\n"
        "ORDER BY l.owner_until_ms, l.message_id\nLIMIT :rows_max",
        "tell": f"{_SET}tell_after_ms = :tell_after_ms\n"
        f"WHERE {_THIS} AND state = 'open' AND told_at_ms IS NULL AND tell_after_ms <= :now_ms",
        "told": f"{_SET}told_at_ms = :now_ms\nWHERE {_THIS} AND told_at_ms IS NULL",
        "rearm": f"{_SET}state = 'open', resends_before = resends, is_rearmed = 1, next_resend_at_ms = :now_ms,\n"
        f"    told_at_ms = NULL, tell_after_ms = 0, {_BY}\nWHERE {_THIS} AND state IN ('open', 'closed', 'legacy')",
        "close": f"{_SET}state = 'closed', {_BY}\nWHERE {_THIS} AND state IN ('open', 'legacy')",
        "confirm_by_hand": f"{_SET}state = 'confirmed', {_BY}\nWHERE {_THIS} AND state IN ('open', 'legacy', 'closed')",
        "unrefuse": f"DELETE FROM guarantee_log\nWHERE {_THIS} AND effect = 'refused'",
        "clear": f"DELETE FROM guarantee_log\nWHERE {_THIS}\n"
        "  AND (effect = 'unknown' OR (effect = 'processing' AND owner_until_ms <= :now_ms))",
        "show_stub": "SELECT topic, message_keys, tags, properties, status, groups_expected, created_at_ms,\n"
        f"    changed_at_ms, changed_by, {size} AS body_bytes\nFROM guarantee_stub WHERE message_id = :message_id",
        "show_deliveries": f"SELECT {_DELIVERY_FIELDS}\nFROM guarantee_delivery d\n"
        "JOIN guarantee_stub s ON s.message_id = d.message_id\nWHERE d.message_id = :message_id\n"
        "ORDER BY d.consumer_group",
        "show_log": f"SELECT {log_fields}\nFROM guarantee_delivery d\nJOIN guarantee_log l\n"
        "    ON l.consumer_group = d.consumer_group AND l.message_id = d.message_id\n"
        "WHERE d.message_id = :message_id\nORDER BY l.consumer_group",
        "backlog": "SELECT d.consumer_group, COUNT(*) AS deliveries, MIN(d.created_at_ms) AS oldest_ms,\n"
        f"    SUM(CASE WHEN {_DUE} THEN 1 ELSE 0 END) AS due\nFROM guarantee_delivery d\nWHERE {_OPEN}\n"
        "GROUP BY d.consumer_group\nORDER BY d.consumer_group",
        "totals": "SELECT d.consumer_group, d.state, COUNT(*) AS deliveries\nFROM guarantee_delivery d\n"
        "GROUP BY d.consumer_group, d.state\nORDER BY d.consumer_group, d.state",
    }
