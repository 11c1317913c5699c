"""Requests about transactions: RESUME_CHECK_HALF_MESSAGE (323), and administration.

Administration is ours (LIST_TRANSACTIONS, SHOW_TRANSACTION, SETTLE_TRANSACTION): `broker/docs/transactions.md`.
Each settlement by hand is logged in `gantry.audit`.  Old records are read by `coldreads`.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from bisect import bisect_left
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from gantry.clock import SteadyClock
from gantry.leaves import properties, records
from gantry.leaves.frames import Command
from gantry.leaves.records import Record
from gantry.model import names
from gantry.transaction.checker import OpenHalf
from gantry.transaction.coldreads import ColdReads
from gantry.transaction.endruns import SettleRequest
from gantry.transaction.half import HalfFacts, has_room
from gantry.transaction.lookups import OutcomeSearch
from gantry.transaction.oplog import TransactionState
from gantry.transaction.service import CheckService
from gantry.wire import bodies, headers
from gantry.wire.codes import ResponseCode
from gantry.wire.command import refusal, reply

if TYPE_CHECKING:
    from gantry.store.store import Store
    from gantry.transport.connection import Connection

_ACTIONS = {"commit": TransactionState.COMMITTED, "rollback": TransactionState.ROLLED_BACK}
_STATES = {
    TransactionState.OPEN: "open",
    TransactionState.COMMITTED: "committed",
    TransactionState.ROLLED_BACK: "rolled-back",
    TransactionState.GIVEN_UP: "given-up",
    None: "unknown",
}
_LIST_MAX = 500
_ENTRIES_AT_ONCE = 256
_EXAMINED_MAX = 5_000
_SHOWN_AT_ONCE = 16  # some 20 us each
_FILTERS = (("group", "producerGroup"), ("topic", "topic"))  # header field, and the field that has to say the same
_BODY_SHOWN_BYTES_MAX = 64 << 10
_ROOT_DIGITS_MAX = 19
_ANYWHERE = 1 << 62

audit = logging.getLogger("gantry.audit")


class TransactionHandlers:
    """Handlers of administrators' requests about transactions, and of RESUME_CHECK_HALF_MESSAGE."""

    def __init__(self, service: CheckService, store: Store, clock: SteadyClock) -> None:
        self._service = service
        self._settling = service.settling
        self._store = store
        self._clock = clock
        self._cold = ColdReads(store, self._settling)
        self._search = OutcomeSearch(store, self._settling)

    async def resume(self, connection: Connection, command: Command) -> Command | None:
        """RESUME_CHECK_HALF_MESSAGE: arm again a message of TRANS_CHECK_MAX_TIME_TOPIC, named by offsetMsgId."""
        header = headers.parse(command.code, command.ext)
        record = await self._at_message_id(header.text("msgId"), names.CHECK_MAX_TIME_TOPIC)
        if record is None:
            remark = f"no message of {names.CHECK_MAX_TIME_TOPIC} has the id {header.text('msgId')[:60]!r}"
            return reply(command, ResponseCode.SYSTEM_ERROR, remark)
        _audit("rearm", _facts(record), "", connection)
        return await self._rearm(connection, command, record)

    async def page(self, connection: Connection, command: Command) -> Command:
        """LIST_TRANSACTIONS: open halves, or those that were given up, page by page."""
        header = headers.parse(command.code, command.ext)
        is_open = header.text("state", "open") != "given-up"
        begin, limit = header.integer("begin"), max(1, min(header.integer("limit", 100), _LIST_MAX))
        if is_open:
            places = list(islice(self._open_places(begin), _EXAMINED_MAX))
        else:
            places = await self._given_up_places(begin)
        wanted = {"state": "open" if is_open else "given-up"}
        wanted |= {field: text for name, field in _FILTERS if (text := header.text(name))}
        found: list[dict[str, object]] = []
        following = places[-1][0] + 1 if len(places) == _EXAMINED_MAX else -1
        async for offset, shown in self._all_shown(places):
            if len(found) >= limit:
                following = offset
                break
            if all(shown[field] == text for field, text in wanted.items()):
                found.append(shown)
        body = {
            "transactions": found,
            "next": following,
            **self._service.state(),
            "groupViolations": self._service.group_rule.shown(),
        }
        return reply(command, body=bodies.dumps(body))

    async def show(self, connection: Connection, command: Command) -> Command:
        """SHOW_TRANSACTION: one, with its properties and the beginning of its body (base64)."""
        wanted = headers.parse(command.code, command.ext).text("id")
        record = await self._named(wanted)
        if record is None:
            return reply(command, ResponseCode.QUERY_NOT_FOUND, f"no transaction {wanted[:80]!r}")
        shown = await self._shown(record)
        shown["properties"] = properties.parse(record.properties)
        shown["bodyBytes"] = len(record.body)
        shown["body"] = base64.b64encode(record.body[:_BODY_SHOWN_BYTES_MAX]).decode()
        return reply(command, body=bodies.dumps(shown))

    async def settle(self, connection: Connection, command: Command) -> Command | None:
        """SETTLE_TRANSACTION: commit, rollback or rearm by an administrator."""
        header = headers.parse(command.code, command.ext)
        wanted, action = header.text("id"), header.text("action")
        record = await self._named(wanted)
        if record is None and action == "rollback" and (lost := self._unreadable(wanted)) is not None:
            audit.warning(
                "rollback of transaction %d of group %r for %s, which cannot be read, asked by %r from %s",
                lost.root,
                lost.group,
                lost.topic,
                header.text("operator")[:80],
                connection.peer,
            )
            self._search.submit(SettleRequest(connection, command, lost, TransactionState.ROLLED_BACK))
            return None
        if record is None:
            return reply(command, ResponseCode.QUERY_NOT_FOUND, f"no transaction {wanted[:80]!r}")
        if action != "rearm" and action not in _ACTIONS:
            remark = f"action {action[:20]!r}: expected commit, rollback or rearm"
            return reply(command, ResponseCode.INVALID_PARAMETER, remark)
        facts = _facts(record)
        _audit(action, facts, header.text("operator"), connection)
        if action == "rearm":
            return await self._rearm(connection, command, record)
        self._search.submit(SettleRequest(connection, command, _half_of(record, facts), _ACTIONS[action]))
        return None

    async def _rearm(self, connection: Connection, command: Command, record: Record) -> Command | None:
        facts = _facts(record)
        root = facts.root
        if root == _ANYWHERE:
            # Given up by RocketMQ, which does not store where the half was: it becomes a new transaction.
            root = self._store.next_queue_offset(names.HALF_TOPIC, 0)
        else:
            outcome = await self._cold.outcome(root)
            if outcome is not TransactionState.GIVEN_UP or self._settling.is_moving(root):
                remark = f"transaction {root} is {_STATES[outcome]}; only one that was given up can be armed again"
                return reply(command, ResponseCode.SYSTEM_ERROR, remark)
        refused = self._settling.rearm(connection, command, root, record)
        return None if refused is None else refusal(command, refused)

    async def _all_shown(self, places: list[tuple[int, int, int]]) -> AsyncIterator[tuple[int, dict[str, object]]]:
        """Yield what can be read at these places, some at a time: other tasks run in between."""
        for at in range(0, len(places), _SHOWN_AT_ONCE):
            part = places[at : at + _SHOWN_AT_ONCE]
            await asyncio.sleep(0)
            await self._cold.bring_in([(log_offset, size) for _, log_offset, size in part])
            for offset, log_offset, _ in part:
                record = await self._cold.record_at(log_offset)
                if record is not None:
                    yield offset, await self._shown(record)

    async def _shown(self, record: Record) -> dict[str, object]:
        facts = _facts(record)
        outcome = await self._cold.outcome(facts.root)
        half = self._service.book.find(facts.root)
        pairs = properties.parse(record.properties)
        return {
            "id": facts.unique_key or str(facts.root),
            "root": facts.root,
            "topic": facts.topic,
            "producerGroup": facts.group,
            "ageMs": self._clock.elapsed_ms(facts.since_ms or record.store_ms),
            "checks": facts.checks if half is None else half.checks,
            "keys": pairs.get("KEYS", ""),
            "logOffset": record.log_offset if half is None else half.log_offset,
            "halfOffset": facts.root if half is None else half.current,
            "messageId": records.offset_message_id(self._store.store_host, record.log_offset),
            "state": _STATES[outcome],
            "movable": has_room(record.properties),
        }

    def _open_places(self, begin: int) -> Iterator[tuple[int, int, int]]:
        offsets = list(self._service.book.open)
        for offset in islice(offsets, bisect_left(offsets, begin), None):
            half = self._service.book.open[offset]
            yield offset, half.log_offset, half.size

    async def _given_up_places(self, begin: int) -> list[tuple[int, int, int]]:
        low, high = self._store.queue_range(names.CHECK_MAX_TIME_TOPIC, 0) or (0, 0)
        found: list[tuple[int, int, int]] = []
        for offset in range(max(low, begin), high):
            entry = await self._cold.entry(names.CHECK_MAX_TIME_TOPIC, offset)
            if entry is not None:
                found.append((offset, entry[0], entry[1]))
            if len(found) >= _EXAMINED_MAX:
                break
            if offset % _ENTRIES_AT_ONCE == 0:
                await asyncio.sleep(0)
        return found

    async def _named(self, wanted: str) -> Record | None:
        """The record of the transaction with this root, unique key or offset message id: the newest there is."""
        found = None
        if wanted.isdecimal() and len(wanted) <= _ROOT_DIGITS_MAX:
            entry = await self._cold.entry(names.HALF_TOPIC, int(wanted))
            found = None if entry is None else await self._cold.record_at(entry[0])
        for topic in (names.HALF_TOPIC, names.CHECK_MAX_TIME_TOPIC):
            found = found or await self._at_message_id(wanted, topic) or await self._cold.with_key(topic, wanted)
        if found is None:
            return None
        half = self._service.book.find(_facts(found).root)
        return found if half is None else await self._cold.record_at(half.log_offset) or found

    def _unreadable(self, wanted: str) -> OpenHalf | None:
        """The open half with this root, whose record cannot be read: all but its message is known."""
        is_root = wanted.isdecimal() and len(wanted) <= _ROOT_DIGITS_MAX
        return self._service.book.find(int(wanted)) if is_root else None

    async def _at_message_id(self, text: str, topic: str) -> Record | None:
        try:
            _, _, log_offset = records.parse_offset_message_id(text)
        except ValueError:
            return None
        found = await self._cold.record_at(log_offset)
        return found if found is not None and found.topic == topic else None


def _audit(action: str, facts: HalfFacts, operator: str, connection: Connection) -> None:
    """Log a settlement by hand, also a refused one.  Names come from clients, so they are quoted."""
    audit.warning(
        "%s transaction %d (%r) of group %r for %s, asked by %r from %s",
        action,
        facts.root,
        facts.unique_key,
        facts.group,
        facts.topic,
        operator[:80],
        connection.peer,
    )


def _facts(record: Record) -> HalfFacts:
    """Return a half's facts; also from its copy among those given up, whose own queue offset is not used."""
    is_half = record.topic == names.HALF_TOPIC
    return HalfFacts(record.properties, record.queue_offset if is_half else _ANYWHERE)


def _half_of(record: Record, facts: HalfFacts) -> OpenHalf:
    """Return the half of a record; for a copy among those given up, the half at its root, its only place."""
    half = OpenHalf.of(record, facts)
    if record.topic != names.HALF_TOPIC:
        half.current = half.root
    return half
