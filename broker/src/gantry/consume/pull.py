"""Checks of a pull, its filter, and the head of its answer.

The order of the checks, their codes and remarks are RocketMQ's (`PullMessageProcessor`), because clients' error
handling and users' searches depend on them.  Every reply with one of the codes SUCCESS (0),
PULL_NOT_FOUND (19), PULL_RETRY_IMMEDIATELY (20) and PULL_OFFSET_MOVED (21) carries the four numbers that clients read
without checking; the header is prepared bytes into which numbers are filled, because one is made for every pull.

A subscription is in the pull itself or in the heartbeats of the group's consumers.  The tag codes are always computed
here from the expression: the codes that a client sends may be wrong or missing.  SQL from heartbeats was compiled then
(`filterdata`).
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from gantry.consume.filter import Wanted, is_tag_filter, wanted_by
from gantry.consume.filterdata import ConsumerFilters
from gantry.errors import Refusal
from gantry.leaves import frames
from gantry.metadata.clients import Clients
from gantry.metadata.groups import Groups
from gantry.metadata.topics import Topics
from gantry.model import names
from gantry.model.subscription import expression_fault
from gantry.store.fetched import Fetched, FetchStatus
from gantry.wire.codes import Language, ResponseCode

if TYPE_CHECKING:
    from gantry.leaves.frames import Pull
    from gantry.transport.connection import Connection

COMMIT_OFFSET = 1
SUSPEND = 2
SUBSCRIPTION_INLINE = 4
CLASS_FILTER = 8

# Distinct expressions are few; a client that invents new ones all the time only empties the table.
# Their length bounds what a program of one takes: some 50 bytes a character.
_EXPRESSIONS_MAX = 10_000
_EXPRESSIONS_CHARS_MAX = 1_000_000

_PREFIX = Struct(">ii")

_CODES: dict[FetchStatus, ResponseCode] = {
    FetchStatus.FOUND: ResponseCode.SUCCESS,
    FetchStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    FetchStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    FetchStatus.NO_MATCHED_LOGIC_QUEUE: ResponseCode.PULL_NOT_FOUND,
    FetchStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_NOT_FOUND,
    FetchStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    FetchStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    FetchStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    FetchStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
}
# A client that pulls an empty or unknown queue at another offset than 0 has one of a former topic.
_EMPTY = frozenset({FetchStatus.NO_MATCHED_LOGIC_QUEUE, FetchStatus.NO_MESSAGE_IN_QUEUE})


class PullRefusal(NamedTuple):
    """A refusal; `forbidden` is RocketMQ's `forbiddenType` beside NO_PERMISSION, else 0."""

    code: int
    remark: str
    forbidden: int = 0


class PullChecks:
    """Reads the metadata for pulls; the only change is that a missing group may be created."""

    def __init__(
        self, topics: Topics, groups: Groups, clients: Clients, filters: ConsumerFilters, broker_address: str
    ) -> None:
        self.is_readable = True  # brokerPermission, may change at run time
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._filters = filters
        self._broker_address = broker_address
        self._chars = 0  # of all expressions in there
        self._expressions: dict[tuple[str | None, str | None], Wanted | PullRefusal] = {}

    def reader(self, connection: Connection, group: str) -> str:
        """Return whose offset a pull is about: the group, or in a broadcasting group `group@client id`."""
        consumers = self._clients.consumer_group(group)
        member = None if consumers is None else consumers.members.get(connection)
        if consumers is None or member is None or not consumers.consumption.is_broadcasting:
            return group
        return f"{group}@{member.client_id}"

    def wanted(self, pull: Pull) -> Wanted | PullRefusal:
        """Return the pull's tag codes or program (None: every message), or why it is refused."""
        group = self._groups.ensure(pull.group)
        topic = self._topics.get(pull.topic)
        if (
            self.is_readable
            and group is not None
            and group.consume_enable
            and topic is not None
            and topic.is_readable
            and 0 <= pull.queue_id < topic.read_queues
        ):
            return self._subscribed(pull)
        return self._why_not(pull)

    def _subscribed(self, pull: Pull) -> Wanted | PullRefusal:
        if pull.sys_flag & CLASS_FILTER:
            return PullRefusal(
                ResponseCode.SYSTEM_ERROR,
                "class filters are not supported; RocketMQ removed them too, filter by tag or SQL92",
            )
        if pull.sys_flag & SUBSCRIPTION_INLINE:
            return self._parsed(pull.expression_type, pull.subscription)
        # Ignored, but kept while the pull is held.
        pull.subscription = pull.expression_type = None
        consumers = self._clients.consumer_group(pull.group)
        if consumers is None:
            return PullRefusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist")
        group = self._groups.get(pull.group)
        if consumers.consumption.is_broadcasting and group is not None and not group.consume_broadcast_enable:
            remark = f"the consumer group[{pull.group}] can not consume by broadcast way"
            return PullRefusal(ResponseCode.NO_PERMISSION, remark, 4)
        if self._groups.forbids_reading(pull.group, pull.topic):
            remark = f"the consumer group[{pull.group}] is forbidden for topic[{pull.topic}]"
            return PullRefusal(ResponseCode.NO_PERMISSION, remark, 5)
        subscription = consumers.subscriptions.get(pull.topic)
        if subscription is None:
            return PullRefusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist")
        if subscription.version < pull.sub_version:
            return PullRefusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        if subscription.class_filter_mode:
            return None
        if not is_tag_filter(subscription.expression_type):
            return self._filtered(pull)
        return self._parsed(subscription.expression_type, subscription.expression)

    def parsed(self, expression_type: str | None, expression: str | None) -> Wanted | PullRefusal:
        """Return the tag codes or the program of an expression (None: every message), or why it is refused."""
        return self._parsed(expression_type, expression)

    def _filtered(self, pull: Pull) -> Wanted | PullRefusal:
        """Return the SQL program from the group's heartbeats, or why the pull is refused."""
        data = self._filters.get(pull.topic, pull.group)
        if data is None:
            remark = "The broker's consumer filter data is not exist!Your expression may be wrong!"
            return PullRefusal(ResponseCode.FILTER_DATA_NOT_EXIST, remark)
        if data.version < pull.sub_version:
            remark = "the consumer's consumer filter data not latest"
            return PullRefusal(ResponseCode.FILTER_DATA_NOT_LATEST, remark)
        return data.program

    def _parsed(self, expression_type: str | None, expression: str | None) -> Wanted | PullRefusal:
        key = (expression_type, expression)
        known = self._expressions.get(key, _UNKNOWN)
        if known is not _UNKNOWN:
            return known
        fault = expression_fault(expression_type, expression)
        if fault is not None:
            return PullRefusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, fault)
        wanted = wanted_by(expression_type, expression)
        result = PullRefusal(wanted.code, wanted.remark) if isinstance(wanted, Refusal) else wanted
        self._chars += len(expression or "")
        if len(self._expressions) >= _EXPRESSIONS_MAX or self._chars > _EXPRESSIONS_CHARS_MAX:
            self._expressions.clear()
            self._chars = len(expression or "")
        self._expressions[key] = result
        return result

    def _why_not(self, pull: Pull) -> PullRefusal:
        """Return the refusal of the first check that fails, in RocketMQ's order."""
        if not self.is_readable:
            remark = f"the broker[{self._broker_address}] pulling message is forbidden"
            return PullRefusal(ResponseCode.NO_PERMISSION, remark, 1)
        group = self._groups.get(pull.group)
        if group is None:
            remark = f"subscription group [{pull.group}] does not exist"
            return PullRefusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            return PullRefusal(ResponseCode.NO_PERMISSION, f"subscription group no permission, {pull.group}", 2)
        topic = self._topics.get(pull.topic)
        if topic is None:
            remark = f"topic[{pull.topic}] not exist, apply first please!"
            return PullRefusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not topic.is_readable:
            return PullRefusal(ResponseCode.NO_PERMISSION, f"the topic[{pull.topic}] pulling message is forbidden", 3)
        remark = (
            f"queueId[{pull.queue_id}] is illegal, topic:[{pull.topic}] "
            f"topicConfig.readQueueNums:[{topic.read_queues}] consumer:[{pull.group}]"
        )
        return PullRefusal(ResponseCode.INVALID_PARAMETER, remark)


def readers_of(topic: str, clients: Clients, pulled: Iterable[tuple[str, str]]) -> set[str]:
    """Return all readers of this topic, as `reader` names them: its subscribers, and the groups in `pulled`, the
    (topic, group) of pulls since the start.  System groups are left out.
    """
    found = {group for name, group in pulled if name == topic and not names.is_system_group(group)}
    for group in clients.consumer_groups():
        if topic in group.subscriptions and group.consumption.is_broadcasting:
            found |= {f"{group.name}@{member.client_id}" for member in group.members.values()}
            found.discard(group.name)
        elif topic in group.subscriptions:
            found.add(group.name)
    return found


def code_of(status: FetchStatus, queue_offset: int) -> ResponseCode:
    """Return the response code for the store's status at the offset of a pull."""
    if status in _EMPTY and queue_offset != 0:
        return ResponseCode.PULL_OFFSET_MOVED
    return _CODES[status]


def reply_head(pull: Pull, code: int, fetched: Fetched, suggested: int = 0) -> bytes:
    """The reply up to its body of `fetched.bytes` bytes; `suggested`: the id of the broker to ask next."""
    header = _HEADERS[code, fetched.status] % (
        fetched.max_offset,
        fetched.min_offset,
        fetched.next_offset,
        suggested,
        pull.opaque,
    )
    return _PREFIX.pack(4 + len(header) + fetched.bytes, len(header)) + header


def _header(code: int, remark: str) -> bytes:
    return (
        f'{{"code":{code:d},"extFields":{{"maxOffset":"%d","minOffset":"%d","nextBeginOffset":"%d",'
        f'"suggestWhichBrokerId":"%d"}},"flag":1,"language":"{Language.PYTHON.name}","opaque":%d,'
        f'"remark":"{remark}","serializeTypeCurrentRPC":"JSON","version":{frames.VERSION}}}'
    ).encode()


_UNKNOWN = PullRefusal(-1, "not parsed yet")
_HEADERS = {
    (int(code), status): _header(code, status.name)
    for status in FetchStatus
    for code in {code_of(status, 0), code_of(status, 1), ResponseCode.PULL_RETRY_IMMEDIATELY}
}
