"""CONSUMER_SEND_MSG_BACK (36): a consumer could not handle a message; it is to be delivered later, or given up.

The consumer names the message by its log offset, which is verified.  The record found there has to be the one that a
queue entry points to (`Reader.record_at`), so neither the middle of a record nor one faked inside a body can be named.
It has to be of the topic that the consumer names, if it names one.  Messages that are not delivered yet (halves,
delayed messages) cannot be sent back.

A copy goes to the group's retry topic, after a delay, or to its dead-letter topic (`append.redelivery` decides); both
topics are created here.  The answer is sent when the copy is confirmed: then the consumer drops the original, and only
the copy is left.  A late answer has the code FLUSH_DISK_TIMEOUT (10), which stock clients take for a failure and keep
the message: it may be delivered twice, but is never lost.

RocketMQ: a group whose retryQueueNums is 0 gets SUCCESS and the message is dropped; so here, and it is counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry.append.acks import Acks
from gantry.append.admit import Admission
from gantry.append.redelivery import MoveToDeadLetters, Origin, Retry, copy_of, fate_of, origin_of
from gantry.append.writing import append_copies
from gantry.consume import sendbackrules as rules
from gantry.consume.sendbackruns import Delays, SendBackRuns
from gantry.errors import Refusal
from gantry.leaves import frames, properties
from gantry.leaves.frames import Command
from gantry.metadata.groups import Groups
from gantry.metadata.topics import Topics
from gantry.model.subscription import GroupConfig
from gantry.store.keysearch import drive, record_at
from gantry.wire import headers
from gantry.wire.codes import ResponseCode
from gantry.wire.command import reply

if TYPE_CHECKING:
    from gantry.leaves.records import Record
    from gantry.store.store import Store
    from gantry.transport.connection import Connection


class SendBack:
    """Handles messages that are sent back, one by one; `runs` takes those of a turn of the loop together."""

    def __init__(
        self,
        store: Store,
        acks: Acks,
        admission: Admission,
        topics: Topics,
        groups: Groups,
        delays: Delays,
    ) -> None:
        self.counts = admission.redeliveries
        self.runs = SendBackRuns(store, acks, admission, topics, groups, delays)
        self._store = store
        self._acks = acks
        self._admission = admission
        self._topics = topics
        self._groups = groups
        self._delays = delays
        self._turn = 0

    def send_back(self, connection: Connection, command: Command) -> Command | None:
        """CONSUMER_SEND_MSG_BACK; return the answer, or None when it is sent later."""
        log_offset = headers.parse(command.code, command.ext).integer("offset")
        store = self._store
        behind = store.dispatched.offset - log_offset
        if behind <= store.settings.warm_bytes or log_offset < store.reader.log_start:
            return self._take(connection, command)
        # Far behind the end of the log: no page fault on the loop.
        drive(record_at(store, log_offset), lambda record: self._answer(connection, command))
        return None

    def _answer(self, connection: Connection, command: Command) -> None:
        answer = self._take(connection, command)
        if answer is not None and not command.is_oneway:
            connection.write(frames.encode(answer))

    def _take(self, connection: Connection, command: Command) -> Command | None:
        header = headers.parse(command.code, command.ext)
        group = self._groups.get(header.text("group"))
        if group is None:
            remark = f"subscription group not exist, {header.text('group')[:60]}"
            return self._refused(command, "no such group", ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not self._admission.is_writable:
            return self._refused(command, "not writable", ResponseCode.NO_PERMISSION, "the broker is not writable")
        if group.retry_queues <= 0:
            self.counts.dropped[group.name] = self.counts.dropped.get(group.name, 0) + 1
            return reply(command)
        record = self._store.reader.record_at(header.integer("offset"))
        if record is None:
            remark = f"look message by offset failed, {header.integer('offset')}; no message begins there"
            return self._refused(command, "no such message", ResponseCode.SYSTEM_ERROR, remark)
        origin = origin_of(record, group.name)
        remark = rules.doubt(record.topic, record.log_offset, origin.topic, group.name, header.text("originTopic"))
        if remark:
            return self._refused(command, "wrong message", ResponseCode.SYSTEM_ERROR, remark)
        if self._groups.forbids_reading(group.name, record.topic):
            remark = f"the consumer group[{group.name}] is forbidden for topic[{record.topic}]"
            return self._refused(command, "not readable", ResponseCode.NO_PERMISSION, remark)
        fate = fate_of(record.reconsume_times, rules.times_max(command, header, group), header.integer("delayLevel"))
        refused = self._append(record, origin, fate, group, header.boolean("unitMode"))
        if refused is not None:
            return self._refused(command, "not written", refused.code, refused.remark)
        if not command.is_oneway:
            self._acks.park(self._store.written.offset, connection, frames.encode(reply(command)), 1)
        return None

    def _append(
        self, record: Record, origin: Origin, fate: Retry | MoveToDeadLetters, group: GroupConfig, unit_mode: bool
    ) -> Refusal | None:
        gate = self._admission.gate
        if gate.refusal is not None:
            return gate.refusal
        topic = self._topics.ensure(rules.target(fate, group, unit_mode))
        if not rules.is_open(topic):
            return Refusal(ResponseCode.NO_PERMISSION, f"the topic[{topic.name}] sending message is forbidden")
        self._turn += 1
        copy = copy_of(record, origin, fate, topic.name, self._turn % rules.queues_of(fate, group, topic))
        if len(copy.properties) > rules.PROPERTIES_BYTES_MAX:
            remark = f"the message's properties have {len(copy.properties)} bytes and leave no room for a redelivery"
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        refused = self._delays.take(copy) if copy.traits & properties.TRAIT_DELAY else None
        if refused is None:
            end = append_copies(self._store, gate, [copy])
            refused = end if isinstance(end, Refusal) else None
        if refused is None:
            self.counts.count(fate, group.name, origin.topic)
        return refused

    def _refused(self, command: Command, reason: str, code: int, remark: str) -> Command:
        self.counts.refuse(reason)
        return reply(command, code, remark)
