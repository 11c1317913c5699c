"""The fields of each request and reply by name, kind and duty: one table, one parser.

A command carries its header fields as text.  A handler asks for them by their wire names and gets values:

    header = headers.parse(command.code, command.ext)
    topics.delete(header.text("topic"))

`parse` checks every field of the code's row, so after it an accessor cannot fail on what a peer sent, only on a name
that the row does not have, which is our bug and a KeyError.  A field that is missing where it must not be, or is not
of its kind, raises HeaderError naming it; the router answers SYSTEM_ERROR with that text, as RocketMQ does for its
decoding errors.  Fields that the row does not know are ignored.  What counts as an integer or a boolean:
`leaves.fields`.

The rows are RocketMQ's classes `...RequestHeader` and `...ResponseHeader`; those of hot requests stand here too,
because an ill-formed one arrives as a Command and has to be told what it lacks.  An empty text counts as missing for
numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from gantry.leaves import fields
from gantry.wire.codes import RequestCode

Value = str | int | bool


class HeaderError(ValueError):
    """A header field that is missing or not of its kind; the text names it."""


class FieldType(Enum):
    """How a field's text is read."""

    TEXT = "text"
    I32 = "32-bit integer"
    I64 = "64-bit integer"
    BOOL = "boolean"


_TEXT, _I32, _BOOL = FieldType.TEXT, FieldType.I32, FieldType.BOOL
_I32_MIN, _I32_MAX = fields.I32_MIN, fields.I32_MAX


class Field(NamedTuple):
    """One field of a header; without a default it has to be there, a default of None leaves it out."""

    name: str
    kind: FieldType
    is_mandatory: bool
    default: Value | None


class Header:
    """The values of one header by their wire names."""

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, Value | None]) -> None:
        self._values = values

    def has(self, name: str) -> bool:
        """Whether the field came or has a default."""
        return self._values[name] is not None

    def text(self, name: str, default: str = "") -> str:
        """A text field; `default` when it did not come."""
        value = self._values[name]
        assert value is None or isinstance(value, str), f"{name} is no text field"
        return default if value is None else value

    def integer(self, name: str, default: int = 0) -> int:
        """An integer field; `default` when it did not come."""
        value = self._values[name]
        assert value is None or isinstance(value, int), f"{name} is no integer field"
        return default if value is None else value

    def boolean(self, name: str, default: bool = False) -> bool:
        """A boolean field; `default` when it did not come."""
        value = self._values[name]
        assert value is None or isinstance(value, bool), f"{name} is no boolean field"
        return default if value is None else value


def parse(code: int, ext: Mapping[str, str]) -> Header:
    """The header of a request with this code; HeaderError naming the field that is wrong."""
    return _parse(REQUESTS[code], ext)


def parse_reply(code: int, ext: Mapping[str, str]) -> Header:
    """The header of the reply to a request with this code; HeaderError naming the field that is wrong."""
    return _parse(REPLIES[code], ext)


def to_ext(**values: str | int | bool | None) -> dict[str, str]:
    """Fields as text, for a command to carry; None leaves a field out."""
    return {name: _written(value) for name, value in values.items() if value is not None}


def _parse(row: tuple[Field, ...], ext: Mapping[str, str]) -> Header:
    get = ext.get
    values: dict[str, Value | None] = {}
    for name, kind, is_mandatory, default in row:
        text = get(name)
        if text is None or (not text and kind is not _TEXT):
            if is_mandatory:
                raise HeaderError(f"header field {name} is missing")
            values[name] = default
        elif kind is _TEXT:
            values[name] = text
        elif kind is _BOOL:
            values[name] = fields.boolean(text)
        else:
            number = fields.integer(text, _I32_MIN, _I32_MAX) if kind is _I32 else fields.integer(text)
            values[name] = number
            if number is None:
                raise HeaderError(f"header field {name} is no {kind.value}: {text[:40]!r}")
    return Header(values)


def _written(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


_KINDS = {"t": FieldType.TEXT, "i": FieldType.I32, "l": FieldType.I64, "b": FieldType.BOOL}


def _row(text: str, **defaults: Value) -> tuple[Field, ...]:
    """A row from `name:kind` words; a `!` behind the name makes it mandatory."""
    row = []
    for word in text.split():
        name, _, kind = word.partition(":")
        bare = name.rstrip("!")
        row.append(Field(bare, _KINDS[kind], name != bare, defaults.get(bare)))
    return tuple(row)


_SEND_LONG = _row(
    "producerGroup!:t topic!:t defaultTopic!:t defaultTopicQueueNums!:i queueId!:i sysFlag!:i bornTimestamp!:l flag!:i "
    "properties:t reconsumeTimes:i unitMode:b maxReconsumeTimes:i batch:b bname:t"
)
_SEND_LETTERS = _row("a!:t b!:t c!:t d!:i e!:i f!:i g!:l h!:i i:t j:i k:b l:i m:b n:t")
_PULL = _row(
    "consumerGroup!:t topic!:t queueId!:i queueOffset!:l maxMsgNums!:i sysFlag!:i commitOffset!:l "
    "suspendTimeoutMillis!:l subscription:t subVersion!:l expressionType:t maxMsgBytes:i"
)
_NOTHING: tuple[Field, ...] = ()
_BROKER = "brokerName!:t brokerAddr!:t clusterName!:t brokerId!:l"
_QUEUE = "topic!:t queueId!:i"
_GROUP_QUEUE = "consumerGroup!:t topic!:t queueId!:i"
_HANDLE = " extraInfo!:t offset!:l"

REQUESTS: dict[int, tuple[Field, ...]] = {
    RequestCode.SEND_MESSAGE: _SEND_LONG,
    RequestCode.SEND_MESSAGE_V2: _SEND_LETTERS,
    RequestCode.SEND_BATCH_MESSAGE: _SEND_LETTERS,
    RequestCode.PULL_MESSAGE: _PULL,
    RequestCode.LITE_PULL_MESSAGE: _PULL,
    RequestCode.QUERY_MESSAGE: _row("topic!:t key!:t maxNum!:i beginTimestamp!:l endTimestamp!:l _UNIQUE_KEY_QUERY:b"),
    RequestCode.QUERY_CONSUMER_OFFSET: _row(
        _GROUP_QUEUE + " setZeroIfNotFound:b gantryBegin:b", setZeroIfNotFound=True
    ),
    RequestCode.UPDATE_CONSUMER_OFFSET: _row(_GROUP_QUEUE + " commitOffset!:l gantryFirst:b"),
    RequestCode.UPDATE_AND_CREATE_TOPIC: _row(
        "topic!:t defaultTopic!:t readQueueNums!:i writeQueueNums!:i perm!:i topicFilterType!:t topicSysFlag:i order:b "
        "attributes:t force:b"
    ),
    RequestCode.GET_ALL_TOPIC_CONFIG: _row("topicSeq:i dataVersion:t maxTopicNum:i"),
    RequestCode.UPDATE_BROKER_CONFIG: _NOTHING,
    RequestCode.GET_BROKER_CONFIG: _NOTHING,
    RequestCode.GET_BROKER_RUNTIME_INFO: _NOTHING,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _row(_QUEUE + " timestamp!:l boundaryType:t", boundaryType="LOWER"),
    RequestCode.GET_MAX_OFFSET: _row(_QUEUE + " committed:b", committed=True),
    RequestCode.GET_MIN_OFFSET: _row(_QUEUE),
    RequestCode.GET_EARLIEST_MSG_STORETIME: _row(_QUEUE),
    RequestCode.VIEW_MESSAGE_BY_ID: _row("offset!:l topic:t"),
    RequestCode.HEART_BEAT: _NOTHING,
    RequestCode.UNREGISTER_CLIENT: _row("clientID!:t producerGroup:t consumerGroup:t"),
    RequestCode.CONSUMER_SEND_MSG_BACK: _row(
        "offset!:l group!:t delayLevel!:i originMsgId:t originTopic:t unitMode:b maxReconsumeTimes:i"
    ),
    RequestCode.END_TRANSACTION: _row(
        "topic:t producerGroup!:t tranStateTableOffset!:l commitLogOffset!:l commitOrRollback!:i "
        "fromTransactionCheck:b msgId:t transactionId:t bname:t"
    ),
    RequestCode.CHECK_TRANSACTION_STATE: _row(
        "topic:t tranStateTableOffset!:l commitLogOffset!:l msgId:t transactionId:t offsetMsgId:t bname:t gantryAge:l"
    ),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _row("consumerGroup!:t"),
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: _row("consumerGroup!:t"),
    RequestCode.GET_ALL_CONSUMER_OFFSET: _NOTHING,
    RequestCode.CHECK_CLIENT_CONFIG: _NOTHING,
    RequestCode.LOCK_BATCH_MQ: _NOTHING,
    RequestCode.UNLOCK_BATCH_MQ: _NOTHING,
    RequestCode.PUT_KV_CONFIG: _row("namespace!:t key!:t value!:t"),
    RequestCode.GET_KV_CONFIG: _row("namespace!:t key!:t"),
    RequestCode.DELETE_KV_CONFIG: _row("namespace!:t key!:t"),
    RequestCode.GET_KVLIST_BY_NAMESPACE: _row("namespace!:t"),
    RequestCode.REGISTER_BROKER: _row(
        _BROKER
        + " haServerAddr!:t heartbeatTimeoutMillis:l enableActingMaster:b compressed:b bodyCrc32:i __ZONE_NAME:t"
    ),
    RequestCode.UNREGISTER_BROKER: _row(_BROKER),
    RequestCode.GET_ROUTEINFO_BY_TOPIC: _row("topic!:t acceptStandardJsonOnly:b"),
    RequestCode.GET_BROKER_CLUSTER_INFO: _NOTHING,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _NOTHING,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _row("groupSeq:i dataVersion:t maxGroupNum:i"),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: _row("brokerName!:t"),
    RequestCode.ADD_WRITE_PERM_OF_BROKER: _row("brokerName!:t"),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _NOTHING,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _row("groupName!:t cleanOffset:b"),
    RequestCode.GET_TOPIC_STATS_INFO: _row("topic!:t"),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: _row("consumerGroup!:t"),
    RequestCode.GET_PRODUCER_CONNECTION_LIST: _row("producerGroup!:t"),
    RequestCode.GET_CONSUME_STATS: _row("consumerGroup!:t topic:t topicList:t"),
    RequestCode.DELETE_TOPIC_IN_BROKER: _row("topic!:t"),
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: _row("topic!:t group!:t timestamp:l isForce:b"),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _row(
        "topic!:t group!:t timestamp!:l isForce:b queueId:i offset:l", queueId=-1, offset=-1
    ),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: _row("topic!:t"),
    RequestCode.GET_CONSUMER_RUNNING_INFO: _row("consumerGroup!:t clientId!:t jstackEnable:b"),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _row("topic!:t group!:t clientAddr:t"),
    RequestCode.QUERY_CONSUME_TIME_SPAN: _row("topic!:t group!:t"),
    RequestCode.QUERY_CORRECTION_OFFSET: _row("filterGroups:t compareGroup!:t topic!:t"),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _row("consumerGroup!:t clientId!:t msgId!:t"),
    RequestCode.CLONE_GROUP_OFFSET: _row("srcGroup!:t destGroup!:t topic:t offline:b"),
    RequestCode.VIEW_BROKER_STATS_DATA: _row("statsName!:t statsKey!:t"),
    RequestCode.GET_BROKER_CONSUME_STATS: _row("isOrder!:b"),
    RequestCode.GET_ALL_PRODUCER_INFO: _NOTHING,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: _row("group!:t"),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: _row("group!:t topic!:t"),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: _row("topic!:t clusterName:t"),
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: _row("topic!:t brokerAddr:t"),
    RequestCode.GET_TOPICS_BY_CLUSTER: _row("cluster!:t"),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: _NOTHING,
    RequestCode.UPDATE_NAMESRV_CONFIG: _NOTHING,
    RequestCode.GET_NAMESRV_CONFIG: _NOTHING,
    RequestCode.QUERY_DATA_VERSION: _row(_BROKER),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: _row("topic:t msgId!:t"),
    RequestCode.LIST_TRANSACTIONS: _row("state:t group:t topic:t begin:l limit:i"),
    RequestCode.SHOW_TRANSACTION: _row("id!:t"),
    RequestCode.SETTLE_TRANSACTION: _row("id!:t action!:t operator:t"),
    RequestCode.DECIDE_BATCH: _row("sinkId!:t batchId!:l action!:t home!:t passing:b operator:t owner:t"),
    RequestCode.END_BATCH: _row("sinkId!:t batchId!:l home!:t passing:b done:b reserve:b"),
    RequestCode.LIST_SINKS: _row("sinkId:t"),
    RequestCode.SEND_REPLY_MESSAGE: _SEND_LONG,
    RequestCode.SEND_REPLY_MESSAGE_V2: _SEND_LETTERS,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: _row(
        "producerGroup!:t topic!:t defaultTopic!:t defaultTopicQueueNums!:i queueId!:i sysFlag!:i bornTimestamp!:l "
        "flag!:i properties:t reconsumeTimes:i unitMode:b bornHost!:t storeHost!:t storeTimestamp!:l"
    ),
    RequestCode.GET_ALL_DELAY_OFFSET: _NOTHING,
    RequestCode.RECALL_MESSAGE: _row("producerGroup:t topic!:t recallHandle!:t bname:t"),
    RequestCode.RETIME_DELAYED: _row("topic!:t recallHandle!:t delayMs!:l"),
    RequestCode.QUEUE_STATS: _row("topic!:t consumerGroup!:t"),
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: _NOTHING,
    RequestCode.CLEAN_UNUSED_TOPIC: _NOTHING,
    RequestCode.DELETE_EXPIRED_COMMITLOG: _NOTHING,
    RequestCode.SHOW_RETENTION: _NOTHING,
    RequestCode.LIST_DELAYED: _row("topic:t begin:l limit:i"),
    RequestCode.CANCEL_DELAYED: _row("id!:t operator:t"),
    RequestCode.LIST_LAG: _row("group:t topic:t begin:l limit:i unbegun:b"),
    RequestCode.POP_MESSAGE: _row(
        _GROUP_QUEUE
        + " maxMsgNums!:i invisibleTime!:l pollTime!:l bornTime:l initMode!:i expType:t exp:t order:b attemptId:t "
        "gantryOwner:t gantryPop:t gantryOrder:t bname:t"
    ),
    RequestCode.PEEK_MESSAGE: _row(_GROUP_QUEUE + " maxMsgNums!:i gantryOrder:t"),
    RequestCode.ACK_MESSAGE: _row(_GROUP_QUEUE + _HANDLE),
    RequestCode.BATCH_ACK_MESSAGE: _NOTHING,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _row(_GROUP_QUEUE + _HANDLE + " invisibleTime!:l"),
    RequestCode.FORWARD_TO_DLQ: _row(_GROUP_QUEUE + _HANDLE),
    RequestCode.NOTIFICATION: _row(
        _GROUP_QUEUE + " pollTime!:l bornTime!:l order:b attemptId:t expType:t exp:t bname:t"
    ),
    RequestCode.POLLING_INFO: _row(_GROUP_QUEUE),
    RequestCode.KEEP_POP_OWNERS: _NOTHING,
    RequestCode.END_POP_OWNER: _row("clientId!:t consumerGroup:t"),
    RequestCode.QUERY_ASSIGNMENT: _NOTHING,
    RequestCode.SET_MESSAGE_REQUEST_MODE: _NOTHING,
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: _NOTHING,
    RequestCode.GET_TOPIC_CONFIG: _row("topic!:t"),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: _row("group!:t"),
    RequestCode.GET_BROKER_MEMBER_GROUP: _row("clusterName!:t brokerName!:t"),
    RequestCode.BROKER_HEARTBEAT: _row(
        "clusterName!:t brokerAddr!:t brokerName!:t brokerId:l epoch:i maxOffset:l confirmOffset:l "
        "heartbeatTimeoutMills:l"
    ),
}

_SEND_REPLY = _row("msgId!:t queueId!:i queueOffset!:l transactionId:t batchUniqId:t recallHandle:t")
_PULL_REPLY = _row(
    "suggestWhichBrokerId!:l nextBeginOffset!:l minOffset!:l maxOffset!:l offsetDelta:l topicSysFlag:i groupSysFlag:i "
    "forbiddenType:i"
)
_OFFSET_REPLY = _row("offset!:l")
_POP_REPLY = _row(
    "popTime!:l invisibleTime!:l reviveQid!:i restNum!:l startOffsetInfo:t msgOffsetInfo:t orderCountInfo:t"
)

REPLIES: dict[int, tuple[Field, ...]] = {
    RequestCode.SEND_MESSAGE: _SEND_REPLY,
    RequestCode.SEND_MESSAGE_V2: _SEND_REPLY,
    RequestCode.SEND_BATCH_MESSAGE: _SEND_REPLY,
    RequestCode.PULL_MESSAGE: _PULL_REPLY,
    RequestCode.LITE_PULL_MESSAGE: _PULL_REPLY,
    RequestCode.QUERY_MESSAGE: _row("indexLastUpdateTimestamp!:l indexLastUpdatePhyoffset!:l"),
    RequestCode.QUERY_CONSUMER_OFFSET: _OFFSET_REPLY,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _OFFSET_REPLY,
    RequestCode.GET_MAX_OFFSET: _OFFSET_REPLY,
    RequestCode.GET_MIN_OFFSET: _OFFSET_REPLY,
    RequestCode.GET_EARLIEST_MSG_STORETIME: _row("timestamp!:l"),
    RequestCode.GET_KV_CONFIG: _row("value:t"),
    RequestCode.REGISTER_BROKER: _row("haServerAddr:t masterAddr:t"),
    RequestCode.QUERY_DATA_VERSION: _row("changed!:b"),
    RequestCode.RECALL_MESSAGE: _row("msgId!:t"),
    RequestCode.RETIME_DELAYED: _row("recallHandle:t"),
    RequestCode.POP_MESSAGE: _POP_REPLY,
    RequestCode.PEEK_MESSAGE: _POP_REPLY,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _row("popTime!:l invisibleTime!:l reviveQid!:i"),
    RequestCode.NOTIFICATION: _row("hasMsg!:b pollingFull:b"),
    RequestCode.POLLING_INFO: _row("pollingNum!:i"),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: _row("wipeTopicCount!:i"),
    RequestCode.ADD_WRITE_PERM_OF_BROKER: _row("addTopicCount!:i"),
}
