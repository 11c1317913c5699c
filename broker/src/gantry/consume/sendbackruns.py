"""Send-backs of one turn of the loop, taken together.

A consumer that fails sends back many messages at a time, and a group has many consumers.  Their records are read and
copied by `leaves.sendbacks`, appended as one run, and answered by one write for each connection.  The rules are those
of `sendback`, which takes whatever needs a closer look: everything that is refused or dropped, records that would have
to be read from the disk, header fields that are not plain numbers.  So nothing is refused here, and `take` returns what
is left.

Before the append nothing is changed but that the group's retry or dead-letter topic is created.  A refusal of the
append leaves all of its messages to `sendback`, because one of them may be the cause.  When an exception ends a run,
what was appended by then is taken out of it: the router tells the others that they failed, and their clients send them
again.

Some 9 us for each of a run of 64 messages of 1 KiB; one by one 46 us.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gantry.append.acks import Acks
from gantry.append.admit import Admission
from gantry.append.redelivery import ORIGIN_ID, TIMES_MAX, MoveToDeadLetters, Retry, as_dead_letter, delay_of, fate_of
from gantry.append.writing import append_copies
from gantry.consume import sendbackrules as rules
from gantry.errors import Refusal
from gantry.leaves import frames, properties, sendbacks
from gantry.leaves.frames import Command
from gantry.metadata.groups import Groups
from gantry.metadata.topics import Topics
from gantry.model import names
from gantry.model.subscription import GroupConfig
from gantry.store.coldrange import ColdRange
from gantry.wire import headers
from gantry.wire.headers import HeaderError

if TYPE_CHECKING:
    from gantry.leaves.frames import Send
    from gantry.store.store import Store
    from gantry.transport.connection import Connection

SentBack = tuple["Connection", Command]
_Targets = dict[tuple[type, bool], tuple[str, int]]
"""The topic of a group's copies and over how many queues they go, by fate and unit mode; 0 where it is not open."""

# Beyond this, writing more at once is not cheaper per message.
_BYTES_MAX = 256 << 10
_OFFSET_DIGITS_MAX = 18
_RETRY_TRAITS = properties.TRAIT_DELAY | properties.TRAIT_NAMES_DELAY


class Delays(Protocol):
    """The used part of `schedule.intake.DelayIntake`."""

    def take(self, send: Send) -> Refusal | None:
        """Hide a message with a DELAY until it is due; return why it is refused, else None."""
        ...

    def hide(self, sends: Iterable[Send]) -> int:
        """Hide as many messages with a DELAY from the first on as need no closer look; return how many."""
        ...


class _Terms(NamedTuple):
    """What a request says but for its message, with what the group's configuration adds."""

    group: GroupConfig
    level: int
    times_max: int
    claimed: str
    unit_mode: bool


class _Asked(NamedTuple):
    """A request that needs no closer look so far."""

    connection: Connection
    command: Command
    terms: _Terms
    log_offset: int


class SendBackRuns:
    """Takes the send-backs of a turn of the loop."""

    def __init__(
        self, store: Store, acks: Acks, admission: Admission, topics: Topics, groups: Groups, delays: Delays
    ) -> None:
        self._store = store
        self._acks = acks
        self._admission = admission
        self._topics = topics
        self._groups = groups
        self._delays = delays
        self._turn = 0
        self._appended: set[int] = set()  # the ids of commands of this run

    def take(self, run: list[SentBack]) -> list[SentBack]:
        """Append copies of the messages and park the answers; return the requests that need a closer look.

        When an exception ends it, the run has only the requests without an effect.
        """
        self._appended.clear()
        is_over = False
        try:
            left = self._take(run)
            is_over = True
        finally:
            if not is_over:
                run[:] = [one for one in run if id(one[1]) not in self._appended]
        return left

    def _take(self, run: Sequence[SentBack]) -> list[SentBack]:
        if self._admission.gate.refusal is not None or not self._admission.is_writable:
            return list(run)
        left: list[SentBack] = []
        groups: dict[str, list[_Asked]] = {}
        self._read_requests(run, groups, left)
        for name, asked in groups.items():
            at = 0
            while at < len(asked):
                found = self._copies([one.log_offset for one in asked[at:]], names.retry_topic(name))
                part = asked[at : at + len(found)]
                self._append(part, found, left)
                at += len(part)
        return left

    def _read_requests(self, run: Sequence[SentBack], groups: dict[str, list[_Asked]], left: list[SentBack]) -> None:
        near = self._store.dispatched.offset - self._store.settings.warm_bytes
        known: dict[tuple[str | int | None, ...], _Terms | None] = {}
        far: list[_Asked] = []
        for one in run:
            connection, command = one
            get = command.ext.get
            offset = get("offset", "")
            said = (
                command.version,
                get("group"),
                get("delayLevel"),
                get("originTopic"),
                get("maxReconsumeTimes"),
                get("unitMode"),
            )
            if said not in known:
                known[said] = self._terms(command)
            terms = known[said]
            if terms is None or not (offset.isascii() and offset.isdigit() and len(offset) <= _OFFSET_DIGITS_MAX):
                left.append(one)
                continue
            asked = _Asked(connection, command, terms, int(offset))
            if asked.log_offset < near:
                far.append(asked)
            else:
                groups.setdefault(terms.group.name, []).append(asked)
        warm = self._warm([asked.log_offset for asked in far])
        for asked in far:
            if asked.log_offset in warm:
                groups.setdefault(asked.terms.group.name, []).append(asked)
            else:
                left.append((asked.connection, asked.command))

    def _warm(self, log_offsets: Sequence[int]) -> set[int]:
        """Those of the records far behind the end that can be read without waiting for the disk: all that are there,
        or none when one of these would have to wait.
        """
        reader = self._store.reader
        there = sorted([one for one in log_offsets if reader.holds(one, rules.HEAD_BYTES)])
        if not there or reader.is_cold([(one, rules.HEAD_BYTES) for one in there]):
            return set()
        long = [(one, size) for one in there if (size := reader.size_at(one)) > rules.HEAD_BYTES]
        return set() if long and reader.is_cold(long) else set(there)

    def _terms(self, command: Command) -> _Terms | None:
        try:
            header = headers.parse(command.code, command.ext)
        except HeaderError:
            return None
        group = self._groups.get(header.text("group"))
        if group is None or group.retry_queues <= 0:
            return None
        times_max = rules.times_max(command, header, group)
        claimed = header.text("originTopic")
        return _Terms(group, header.integer("delayLevel"), times_max, claimed, header.boolean("unitMode"))

    def _copies(self, offsets: Sequence[int], retry_topic: str) -> list[tuple[Send, str] | None]:
        """Copies of the records at as many of these log offsets as are taken at once, and their first topics."""
        reader = self._store.reader
        memory, base, end = reader.stretch(offsets[0])
        inside = next((number for number, one in enumerate(offsets) if not base <= one < end), len(offsets))
        if inside == 0:
            return [None]  # nothing is there
        found = sendbacks.copies(memory, base, end, offsets[:inside], retry_topic, _BYTES_MAX)
        # Only a record to which its queue's entry points was delivered.
        queues: dict[tuple[str, int], list[Send]] = {}
        for one in found:
            if one is not None:
                queues.setdefault((one[0].topic, one[0].queue_id), []).append(one[0])
        known: set[int] = set()
        for (topic, queue_id), sends in queues.items():
            look = partial(reader.places_at, topic, queue_id, [send.queue_offset for send in sends])
            places = reader.look(look, ())
            if isinstance(places, ColdRange):
                continue  # these go one by one, when the entry has been read
            pairs = zip(places, sends, strict=False)
            known |= {send.log_offset for place, send in pairs if place[:2] == (send.log_offset, send.size)}
        return [None if one is None or one[0].log_offset not in known else one for one in found]

    def _append(
        self, asked: Sequence[_Asked], found: Sequence[tuple[Send, str] | None], left: list[SentBack]
    ) -> None:
        copies: list[Send] = []
        delayed: list[Send] = []
        taken: list[tuple[_Asked, Retry | MoveToDeadLetters, str]] = []
        doubts: dict[tuple[str, str, str], bool] = {}
        targets: _Targets = {}
        for one, copied in zip(asked, found, strict=True):
            fate = None
            if copied is not None:
                send, origin = copied
                about = send.topic, origin, one.terms.claimed
                if about not in doubts:
                    doubts[about] = self._is_doubtful(send, origin, one.terms)
                fate = None if doubts[about] else self._address(send, origin, one.terms, targets)
            if copied is None or fate is None:
                left.append((one.connection, one.command))
                continue
            copies.append(send)
            taken.append((one, fate, origin))
            if isinstance(fate, Retry):
                delayed.append(send)
        is_hidden = self._delays.hide(iter(delayed)) == len(delayed)
        end: int | Refusal | None = None
        if copies and is_hidden:
            end = append_copies(self._store, self._admission.gate, copies, is_scanned=True)
        if end is None or isinstance(end, Refusal):
            left += [(one.connection, one.command) for one, _, _ in taken]
            return
        self._appended.update([id(one.command) for one, _, _ in taken])
        self._answer(end, taken)

    def _is_doubtful(self, send: Send, origin: str, terms: _Terms) -> bool:
        group = terms.group.name
        is_doubtful = rules.doubt(send.topic, send.log_offset, origin, group, terms.claimed) != ""
        return is_doubtful or self._groups.forbids_reading(group, send.topic)

    def _address(
        self, send: Send, origin: str, terms: _Terms, targets: _Targets
    ) -> Retry | MoveToDeadLetters | None:
        """Make a copy the one for the retry or dead-letter topic; None when that needs a closer look."""
        fate = fate_of(send.reconsume_times, terms.times_max, terms.level)
        kind = type(fate), terms.unit_mode
        if kind not in targets:
            topic = self._topics.ensure(rules.target(fate, terms.group, terms.unit_mode))
            targets[kind] = topic.name, rules.queues_of(fate, terms.group, topic) if rules.is_open(topic) else 0
        name, queues = targets[kind]
        if not queues:
            return None
        self._turn += 1
        send.topic, send.queue_id = name, self._turn % queues
        send.reconsume_times = min(send.reconsume_times + 1, TIMES_MAX)
        if isinstance(fate, Retry):
            send.properties += delay_of(fate)
            send.traits |= _RETRY_TRAITS
        else:
            message_id = properties.get(send.properties, ORIGIN_ID) or b""
            send.properties = as_dead_letter(send.properties, origin, message_id.decode())
        return fate if len(send.properties) <= rules.PROPERTIES_BYTES_MAX else None

    def _answer(self, end: int, taken: Sequence[tuple[_Asked, Retry | MoveToDeadLetters, str]]) -> None:
        count = self._admission.redeliveries.count
        answers: dict[Connection, list[bytes]] = {}
        for one, fate, origin in taken:
            count(fate, one.terms.group.name, origin)
            if not one.command.is_oneway:
                answers.setdefault(one.connection, []).append(frames.encode_success(one.command.opaque))
        for connection, pieces in answers.items():
            self._acks.park(end, connection, b"".join(pieces), len(pieces))
