"""What a subscriber gets of a published message, and when a failed attempt is repeated.  Pure.

    SIMPLIFIED    the body as it was published
    XML, JSON     a document with the body, the ids and the times

Retries are those of MNS's documents: BACKOFF_RETRY three times after 10 to 20 s, EXPONENTIAL_DECAY_RETRY 176 times
after 1, 2, 4, ... and then 512 s, which is a day.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
from dataclasses import dataclass

from gantry.queues import xmlout
from gantry.queues.subscriptions import OWNER, NotifyFormat, NotifyStrategy, TopicSubscription

_BACKOFF_S = (10.0, 20.0)
_DECAY_LAST_S = 512
_RETRIES = {NotifyStrategy.BACKOFF: 3, NotifyStrategy.DECAY: 176}


@dataclass(frozen=True, slots=True)
class PublishedMessage:
    """A message of a topic as the broker has it; time in ms since the epoch."""

    topic: str
    message_id: str
    body: bytes
    tag: str
    published_ms: int


def notification(message: PublishedMessage, subscription: TopicSubscription) -> bytes:
    """Return the text for a subscriber.

    A body that is no text of XML, which only other protocols can send, stands in a document as base64.
    """
    if subscription.format is NotifyFormat.SIMPLIFIED:
        return message.body
    values: dict[str, object] = {
        "TopicOwner": OWNER,
        "TopicName": message.topic,
        "Subscriber": OWNER,
        "SubscriptionName": subscription.name,
        "MessageId": message.message_id,
        "Message": _text(message.body),
        "MessageMD5": hashlib.md5(message.body, usedforsecurity=False).hexdigest().upper(),
    }
    if message.tag:
        values["MessageTag"] = message.tag
    values["PublishTime"] = message.published_ms
    if subscription.format is NotifyFormat.JSON:
        return json.dumps(values, ensure_ascii=False).encode()
    return xmlout.document("Notification", "".join(xmlout.element(name, value) for name, value in values.items()))


def retry_after_s(strategy: NotifyStrategy, failures: int, chance: random.Random) -> float | None:
    """Return how long to wait after so many failures, at least one; None when there is no retry left."""
    if failures > _RETRIES[strategy]:
        return None
    return wait_s(strategy, failures, chance)


def wait_s(strategy: NotifyStrategy, failures: int, chance: random.Random) -> float:
    """Return how long to wait after so many failures that do not count against the number of retries."""
    if strategy is NotifyStrategy.BACKOFF:
        return chance.uniform(*_BACKOFF_S)
    return float(min(_DECAY_LAST_S, 1 << min(failures - 1, 16)))


def _text(body: bytes) -> str:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return base64.b64encode(body).decode()
    return text if xmlout.is_text(text) else base64.b64encode(body).decode()
