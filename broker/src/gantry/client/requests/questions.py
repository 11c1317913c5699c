"""Requests of producers and consumers (facts: protocol, sections 2 and 3).

Header values are always text.  Sends use the one-letter names of SEND_MESSAGE_V2, as Java's do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gantry.client.outgoing import Outgoing
from gantry.client.requests.question import Question, document, nothing, number, require, value
from gantry.client.results import PullResult, PullStatus, SendResult
from gantry.client.settings import ConsumerSettings, StartFrom
from gantry.errors import OutcomeUnknownError
from gantry.leaves.frames import Command
from gantry.model.message import StoredMessage
from gantry.model.names import TEMPLATE_TOPIC
from gantry.model.route import MASTER_ID, MessageQueue, QueueData, TopicRoute
from gantry.model.subscription import Subscription
from gantry.wire import record
from gantry.wire.bodies import dumps
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import request
from gantry.wire.heartbeat import Heartbeat
from gantry.wire.heartbeat import write as write_heartbeat

NEW_TOPIC_QUEUES = 4  # how many queues a topic gets that the first send creates; RocketMQ's defaultTopicQueueNums
_PULL_COMMIT, _PULL_SUSPEND, _PULL_SUBSCRIPTION, _PULL_LITE = 1, 2, 4, 16
_STORED_BUT = {
    ResponseCode.FLUSH_DISK_TIMEOUT: "stored in memory, its disk did not confirm in time",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "stored, its slaves did not confirm in time",
    ResponseCode.SLAVE_NOT_AVAILABLE: "stored, no slave is there to confirm",
}
_PULL_STATUS = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MESSAGE,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCH,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


def route(topic: str) -> Question[TopicRoute | None]:
    """Ask a name server where a topic's queues are; None when it does not know the topic."""

    def read(reply: Command) -> TopicRoute | None:
        if reply.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        return value(require(reply), TopicRoute.from_json)

    ext = {"topic": topic, "acceptStandardJsonOnly": "true"}
    return Question(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext), read)


def route_of_new_topic(template: TopicRoute | None) -> TopicRoute | None:
    """Return the route that a new topic will get from this route of the template topic; None without a template."""
    if template is None:
        return None
    queues = tuple(
        QueueData(
            data.broker_name,
            min(NEW_TOPIC_QUEUES, data.read_queues),
            min(NEW_TOPIC_QUEUES, data.write_queues),
            data.perm,
        )
        for data in template.queues
    )
    return TopicRoute(queues, template.brokers)


def send(group: str, outgoing: Outgoing, queue: MessageQueue) -> Question[SendResult]:
    """Store a message or a batch.

    Reading raises OutcomeUnknownError when the broker stored the message but cannot guarantee that it keeps it (10, 11,
    12, or any code that comes with the message's offset).
    """

    def read(reply: Command) -> SendResult:
        if reply.code in _STORED_BUT:
            raise OutcomeUnknownError(f"{queue.broker_name}: {_STORED_BUT[ResponseCode(reply.code)]}")
        if is_in_doubt(reply):
            raise OutcomeUnknownError(f"{queue.broker_name}: {reply.code} {reply.remark}")
        require(reply)
        return SendResult(
            outgoing.message_ids,
            tuple(reply.ext.get("msgId", "").split(",")),
            MessageQueue(queue.topic, queue.broker_name, number(reply, "queueId")),
            number(reply, "queueOffset"),
            reply.ext.get("recallHandle", ""),
        )

    code = RequestCode.SEND_BATCH_MESSAGE if outgoing.is_batch else RequestCode.SEND_MESSAGE_V2
    ext = {
        "a": group,
        "b": outgoing.topic,
        "c": TEMPLATE_TOPIC if outgoing.may_make_topic else "",
        "d": str(NEW_TOPIC_QUEUES),
        "e": str(queue.queue_id),
        "f": str(outgoing.sys_flag),
        "g": str(outgoing.born_ms),
        "h": str(outgoing.flag),
        "i": outgoing.properties.decode(),
        "j": "0",
        "k": "false",
        "m": "true" if outgoing.is_batch else "false",
        "n": queue.broker_name,
    }
    return Question(request(code, ext, outgoing.body), read)


def is_in_doubt(reply: Command) -> bool:
    """Return whether the message was stored without a guarantee: a refusal that nevertheless names its offset.

    A master answers so when its group may have another master by now, with the code of a busy broker (2).
    """
    return reply.code != ResponseCode.SUCCESS and bool(reply.ext.get("msgId"))


@dataclass(frozen=True, slots=True)
class PullSettings:
    """The parts of a pull that are equal for every pull of a queue."""

    group: str
    subscription: Subscription
    count_max: int = 32
    bytes_max: int = 1 << 20
    wait_s: float = 15.0  # RocketMQ's brokerSuspendMaxTimeMillis
    is_raw: bool = False  # records are not decoded
    is_lite: bool = False  # of a pull consumer: LITE_PULL_MESSAGE, which brokers answer in the same way


def pull(queue: MessageQueue, offset: int, settings: PullSettings, progress: int | None = None) -> Question[PullResult]:
    """Ask for messages from `offset` on; the broker holds the request while there are none.

    progress: commit this offset with the pull, before it looks for messages (RocketMQ: FLAG_COMMIT_OFFSET).
    """

    def read(reply: Command) -> PullResult:
        require(reply, *_PULL_STATUS)
        is_found = reply.code == ResponseCode.SUCCESS
        is_read = is_found and not settings.is_raw
        found = record.pulled(reply.body, queue.broker_name, queue.topic) if is_read else []
        following = number(reply, "nextBeginOffset")
        messages = tuple(_in_their_places(found, offset, following))
        if sum([message.size for message in messages]) < len(reply.body) and messages:
            following = messages[-1].queue_offset + 1  # the others come with the next pull, because the memory is full
        return PullResult(
            _PULL_STATUS[ResponseCode(reply.code)],
            following,
            number(reply, "minOffset"),
            number(reply, "maxOffset"),
            messages,
            number(reply, "suggestWhichBrokerId") if "suggestWhichBrokerId" in reply.ext else MASTER_ID,
            bytes(reply.body) if is_found and settings.is_raw else b"",
        )

    suspend = _PULL_SUSPEND if settings.wait_s > 0 else 0
    commit = 0 if progress is None else _PULL_COMMIT
    ext = {
        "consumerGroup": settings.group,
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": str(settings.count_max),
        "sysFlag": str(_PULL_SUBSCRIPTION | suspend | commit | (_PULL_LITE if settings.is_lite else 0)),
        "commitOffset": str(progress or 0),
        "suspendTimeoutMillis": str(int(settings.wait_s * 1000)),
        "subscription": settings.subscription.expression,
        "subVersion": str(settings.subscription.version),
        "expressionType": settings.subscription.expression_type,
        "maxMsgBytes": str(settings.bytes_max),
        "bname": queue.broker_name,
    }
    code = RequestCode.LITE_PULL_MESSAGE if settings.is_lite else RequestCode.PULL_MESSAGE
    return Question(request(code, ext), read)


def _in_their_places(messages: list[StoredMessage], offset: int, end: int) -> list[StoredMessage]:
    """Return the messages of a pull at `offset` with plausible queue offsets.

    An offset outside the answer, or one that leaves too few for the messages after it, comes from a damaged record.
    Such a message gets the offset after the one before it, because the reader would otherwise skip messages or not
    advance.
    """
    places = [message.queue_offset for message in messages]
    if places == list(range(offset, offset + len(messages))) and offset + len(messages) <= end:
        return messages  # nearly always
    found: list[StoredMessage] = []
    for last, message in enumerate(messages, end - len(messages)):
        if not offset <= message.queue_offset <= last:
            named = f"queue offset {message.queue_offset}, expected {offset} to {last}"
            damage = message.decode_error or f"the record is damaged: {named}"
            message = replace(message, queue_offset=offset, decode_error=damage)
        found.append(message)
        offset = message.queue_offset + 1
    return found


def send_back(group: str, message: StoredMessage, level: int, redeliveries_max: int | None) -> Question[None]:
    """Have a message delivered again after a delay level (0: the broker chooses); -1: keep it as a dead letter."""

    def read(reply: Command) -> None:
        if reply.code in _STORED_BUT:
            raise OutcomeUnknownError(f"{message.broker_name}: {_STORED_BUT[ResponseCode(reply.code)]}")
        require(reply)

    ext = {
        "offset": str(message.log_offset),
        "group": group,
        "delayLevel": str(level),
        "originMsgId": message.message_id,
        "originTopic": message.topic,
        "unitMode": "false",
        "bname": message.broker_name,
    }
    if redeliveries_max is not None:
        ext["maxReconsumeTimes"] = str(redeliveries_max)
    return Question(request(RequestCode.CONSUMER_SEND_MSG_BACK, ext), read)


def check_filter(group: str, client_id: str, subscription: Subscription) -> Question[None]:
    """Ask whether a broker can compile this filter; RefusedError with the fault when it cannot."""
    body = dumps({"clientId": client_id, "group": group, "subscriptionData": subscription.to_json()})
    return Question(request(RequestCode.CHECK_CLIENT_CONFIG, {}, body), nothing)


def heartbeat(news: Heartbeat) -> Question[None]:
    """Tell a broker which client is on this connection."""
    return Question(request(RequestCode.HEART_BEAT, {}, write_heartbeat(news)), nothing)


def unregister(said: Heartbeat) -> Question[None]:
    """Unregister the client of this heartbeat from its group, so that the group rebalances at once."""
    ext = {"clientID": said.client_id}
    ext.update(("producerGroup", group) for group in said.producer_groups)
    ext.update(("consumerGroup", consumer.group) for consumer in said.consumers)
    return Question(request(RequestCode.UNREGISTER_CLIENT, ext), nothing)


def members(group: str) -> Question[list[str]]:
    """Ask one broker for the client ids of a consumer group."""

    def read(reply: Command) -> list[str]:
        found = document(require(reply)).get("consumerIdList")
        return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []

    return Question(request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group}), read)


def committed(group: str, queue: MessageQueue) -> Question[int | None]:
    """Ask for the offset that a group committed; None when it never did."""
    return _offset_of(group, queue, setZeroIfNotFound="false")


def begin(group: str, queue: MessageQueue, settings: ConsumerSettings) -> Question[int | None]:
    """Ask where a group goes on in a queue, or has to begin; None: as its members are configured.

    A broker lets a group begin at the first message of a queue that appeared later than the group, and, when members
    begin at the end, at the begin of a queue whose first message is still in memory: a new group does not miss the
    beginning of a new topic.
    """
    if settings.start_from is StartFrom.LAST:
        return _offset_of(group, queue)
    asks = {"gantryBegin": "true"} if settings.start_from is StartFrom.TIMESTAMP else {}
    return _offset_of(group, queue, setZeroIfNotFound="false", **asks)


def _offset_of(group: str, queue: MessageQueue, **fields: str) -> Question[int | None]:
    def read(reply: Command) -> int | None:
        if reply.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        offset = number(require(reply), "offset")
        return offset if offset >= 0 else None

    ext = _of_queue(queue) | {"consumerGroup": group} | fields
    return Question(request(RequestCode.QUERY_CONSUMER_OFFSET, ext), read)


def commit(group: str, queue: MessageQueue, offset: int) -> Question[None]:
    """Set a group's committed offset."""
    ext = _of_queue(queue) | {"consumerGroup": group, "commitOffset": str(offset)}
    return Question(request(RequestCode.UPDATE_CONSUMER_OFFSET, ext), nothing)


def commit_first(group: str, queue: MessageQueue, offset: int) -> Question[int]:
    """Set a group's committed offset only if it has none. Return the one that it has then.

    RocketMQ's brokers and older ones of ours replace an offset that is there, and name none.
    """

    def read(reply: Command) -> int:
        return number(reply, "offset") if "offset" in require(reply).ext else offset

    ext = _of_queue(queue) | {"consumerGroup": group, "commitOffset": str(offset), "gantryFirst": "true"}
    return Question(request(RequestCode.UPDATE_CONSUMER_OFFSET, ext), read)


def max_offset(queue: MessageQueue) -> Question[int]:
    """Ask for the offset of the next message to be stored."""
    return Question(request(RequestCode.GET_MAX_OFFSET, _of_queue(queue)), _offset)


def min_offset(queue: MessageQueue) -> Question[int]:
    """Ask for the offset of the oldest stored message."""
    return Question(request(RequestCode.GET_MIN_OFFSET, _of_queue(queue)), _offset)


def offset_at(queue: MessageQueue, timestamp_ms: int) -> Question[int]:
    """Ask for the offset of the first message stored at or after a time (ms since the epoch)."""
    ext = _of_queue(queue) | {"timestamp": str(timestamp_ms)}
    return Question(request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext), _offset)


def _offset(reply: Command) -> int:
    return number(require(reply), "offset")


def _of_queue(queue: MessageQueue) -> dict[str, str]:
    return {"topic": queue.topic, "queueId": str(queue.queue_id), "bname": queue.broker_name}
