"""What a topic and its subscriptions are: attributes of the broker's topic, and the documents of clients.  Pure.

An HTTP topic is the broker's topic of its name.  A subscription is one attribute of it: a JSON text in base64url.  A
deleted subscription stays as a text that says so and when, for a week: a master that was away when it was deleted still
has it, and the newest text counts.  So a subscription does not come back with that master.

Each subscription is a consumer group of its own at the broker, `gantry-sub-ID`.  The ID is made at each subscribe, so
that subscribing again under the same name begins at the end of the topic.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from gantry.model import httptopic
from gantry.model.names import is_system_topic
from gantry.queues import xmlout
from gantry.queues.faults import QueueFaultError, invalid, malformed
from gantry.queues.xmlin import XmlElement

TAG_CHARACTERS_MAX = 16
ENDPOINT_CHARACTERS_MAX = 600
OWNER = "gantry"  # the account, where a document names one: there is one only
KEPT_S = 86_400
"""MessageRetentionPeriod of a topic as clients are told it: how long a message is tried to be forwarded, at most."""
DELETED_KEPT_S = 7 * 86_400
_SIZE_MIN, _SIZE_MAX = 1024, 65_536
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,119}\Z")
_QUEUE_ENDPOINT = re.compile(r"acs:mns:[^:/]*:[^:/]*:queues/([0-9A-Za-z][0-9A-Za-z_-]{0,119})\Z")
_HTTP_ENDPOINT = re.compile(r"https?://[!-~]+\Z")
_TAG = re.compile(r"[^\s|\x00-\x1f\x7f]+\Z")


class NotifyStrategy(Enum):
    """How often and when a failed forwarding is repeated."""

    BACKOFF = "BACKOFF_RETRY"
    DECAY = "EXPONENTIAL_DECAY_RETRY"


class NotifyFormat(Enum):
    """What a subscriber gets."""

    XML = "XML"
    JSON = "JSON"
    SIMPLIFIED = "SIMPLIFIED"


@dataclass(frozen=True, slots=True)
class TopicSubscription:
    """One subscription; times in seconds since the epoch.  `tag` empty: all messages."""

    name: str
    identity: str  # 16 hex digits, made at each subscribe
    endpoint: str
    strategy: NotifyStrategy = NotifyStrategy.BACKOFF
    format: NotifyFormat = NotifyFormat.XML
    tag: str = ""
    created_s: int = 0
    modified_s: int = 0
    is_deleted: bool = False

    @property
    def group(self) -> str:
        """The consumer group that reads the topic for this subscription."""
        return f"{httptopic.GROUP_PREFIX}{self.identity}"

    @property
    def queue(self) -> str:
        """The name of the subscribed queue; empty for an HTTP endpoint."""
        found = _QUEUE_ENDPOINT.match(self.endpoint)
        return found[1] if found else ""


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """What a client may set."""

    size_max: int = _SIZE_MAX
    is_logging: bool = False


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """A topic that exists; `every` has deleted subscriptions too."""

    name: str
    identity: str
    settings: TopicOptions = TopicOptions()
    created_s: int = 0
    modified_s: int = 0
    every: Mapping[str, TopicSubscription] = field(default_factory=dict)

    def subscriptions(self) -> list[TopicSubscription]:
        """Return the subscriptions that are there, in the order of their names."""
        return [one for _, one in sorted(self.every.items()) if not one.is_deleted]


def check_name(name: str, what: str) -> str:
    """Return the name of a topic or subscription; QueueFaultError 400 when it is none. what: Topic or Subscription."""
    if not 0 < len(name) <= 120:
        text = f"the name of a {what.lower()} has {len(name)} characters, expected 1 to 120"
        raise QueueFaultError(400, f"{what}NameLengthError", text)
    if not _NAME.match(name) or (what == "Topic" and is_system_topic(name)):
        text = f"{name!r} is no name of a {what.lower()}; use letters, digits, - and _, with a letter or digit first"
        raise invalid(text)
    return name


def asked_topic(root: XmlElement | None, base: TopicOptions) -> TopicOptions:
    """Return `base` with what a `Topic` document changes; QueueFaultError 400 for values that are not allowed."""
    texts = _texts(root, "Topic")
    size = texts.get("MaximumMessageSize", "")
    if size:
        if not (size.isascii() and size.isdecimal() and len(size) < 9 and _SIZE_MIN <= int(size) <= _SIZE_MAX):
            raise invalid(f"MaximumMessageSize is {size[:40]!r}, expected a number from {_SIZE_MIN} to {_SIZE_MAX}")
        base = replace(base, size_max=int(size))
    logging = texts.get("LoggingEnabled", "").lower()
    if logging not in ("", "true", "false"):
        raise invalid(f"LoggingEnabled is {logging[:40]!r}, expected True or False")
    return replace(base, is_logging=logging == "true") if logging else base


def asked_subscription(root: XmlElement | None, base: TopicSubscription, is_new: bool) -> TopicSubscription:
    """Return `base` with what a `Subscription` document says; QueueFaultError 400 for values that are not allowed.

    Endpoint and format are only for new ones.  Which endpoints are served is the server's concern, not checked here.
    """
    texts = _texts(root, "Subscription")
    changes: dict[str, object] = {}
    if is_new:
        changes["endpoint"] = _endpoint(texts.get("Endpoint", ""))
        changes["format"] = _one_of(NotifyFormat, "NotifyContentFormat", texts, base.format)
    if "FilterTag" in texts:
        changes["tag"] = check_tag("FilterTag", texts["FilterTag"])
    changes["strategy"] = _one_of(NotifyStrategy, "NotifyStrategy", texts, base.strategy)
    return replace(base, **changes)  # type: ignore[arg-type]


def check_tag(name: str, tag: str) -> str:
    """Return a tag, or nothing; QueueFaultError 400 for one that a filter cannot have."""
    if tag and (len(tag) > TAG_CHARACTERS_MAX or not _TAG.match(tag) or tag == "*"):
        text = f"{name} is {tag[:40]!r}, expected up to {TAG_CHARACTERS_MAX} characters without blanks and |, and not *"
        raise invalid(text)
    return tag


def _texts(root: XmlElement | None, name: str) -> dict[str, str]:
    if root is None:
        return {}
    if root.name != name:
        raise malformed(f"the root of the document is {root.name[:40]!r}, expected {name}")
    return {child.name: child.text.strip() for child in root.children}


def _endpoint(text: str) -> str:
    if len(text) > ENDPOINT_CHARACTERS_MAX:
        raise invalid(f"Endpoint has {len(text)} characters, {ENDPOINT_CHARACTERS_MAX} are allowed")
    if not _QUEUE_ENDPOINT.match(text) and not _HTTP_ENDPOINT.match(text):
        raise invalid(f"Endpoint is {text[:100]!r}, expected acs:mns:REGION:ACCOUNT:queues/NAME or a URL")
    return text


def _one_of(
    kind: type[NotifyFormat] | type[NotifyStrategy], name: str, texts: Mapping[str, str], base: object
) -> object:
    text = texts.get(name, "")
    if not text:
        return base
    try:
        return kind(text)
    except ValueError:
        raise invalid(f"{name} is {text[:40]!r}, expected {' or '.join(one.value for one in kind)}") from None


# Attributes of the broker's topic


def stored(topic: KnownTopic) -> dict[str, str]:
    """Return the attributes of a topic with all its subscriptions."""
    found = {
        httptopic.ID: topic.identity,
        httptopic.SIZE_MAX: str(topic.settings.size_max),
        httptopic.LOGGING: str(topic.settings.is_logging).lower(),
        httptopic.CREATED_S: str(topic.created_s),
        httptopic.MODIFIED_S: str(topic.modified_s),
    }
    return found | {f"{httptopic.SUBSCRIPTION}{name}": _written(one) for name, one in topic.every.items()}


def of_attributes(name: str, given: Mapping[str, str]) -> KnownTopic | None:
    """Return the topic with these attributes; None when it is only a topic of the broker.

    Values that cannot be read count as the default; a subscription that cannot be read is none.
    """
    if httptopic.ID not in given:
        return None
    every: dict[str, TopicSubscription] = {}
    for key, text in given.items():
        if key.startswith(httptopic.SUBSCRIPTION):
            one = _read(key.removeprefix(httptopic.SUBSCRIPTION), text)
            if one is not None:
                every[one.name] = one
    size_max = _number(given.get(httptopic.SIZE_MAX, "")) or _SIZE_MAX
    settings = TopicOptions(size_max, given.get(httptopic.LOGGING) == "true")
    created_s, modified_s = (_number(given.get(key, "")) for key in (httptopic.CREATED_S, httptopic.MODIFIED_S))
    return KnownTopic(name, given[httptopic.ID], settings, created_s, modified_s, every)


def merged(topics: Iterable[KnownTopic]) -> KnownTopic | None:
    """Return what several masters have of one topic as one: the newest creation, and the newest of everything in it."""
    topics = list(topics)
    if not topics:
        return None
    born = max((one.created_s, one.identity) for one in topics)
    alive = [one for one in topics if (one.created_s, one.identity) == born]
    newest = max(alive, key=lambda one: one.modified_s)
    every: dict[str, TopicSubscription] = {}
    for topic in alive:
        for name, one in topic.every.items():
            if name not in every or _age(one) > _age(every[name]):
                every[name] = one
    return replace(newest, every=every)


def without_old(topic: KnownTopic, now_s: int) -> KnownTopic:
    """Return a topic without the subscriptions that were deleted long ago."""
    kept = {
        name: one for name, one in topic.every.items() if not one.is_deleted or now_s - one.modified_s < DELETED_KEPT_S
    }
    return replace(topic, every=kept)


def _age(one: TopicSubscription) -> tuple[int, int, str]:
    return one.modified_s, one.created_s, one.identity


def _written(one: TopicSubscription) -> str:
    found: list[object] = [one.identity, one.created_s, one.modified_s]
    if not one.is_deleted:
        found += [one.endpoint, one.strategy.value, one.format.value, one.tag]
    text = json.dumps(found, separators=(",", ":"), ensure_ascii=False)
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def _read(name: str, text: str) -> TopicSubscription | None:
    try:
        found = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        identity, created_s, modified_s, *rest = found
        if not rest:
            return TopicSubscription(
                name, str(identity), "", created_s=created_s, modified_s=modified_s, is_deleted=True
            )
        endpoint, strategy, kind, tag = rest
        return TopicSubscription(
            name, identity, endpoint, NotifyStrategy(strategy), NotifyFormat(kind), tag, created_s, modified_s
        )
    except (binascii.Error, ValueError, TypeError):
        return None


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 12 else 0


# Documents of the server


def described_topic(topic: KnownTopic, count: int) -> str:
    """Return a topic as elements of a document; count: MessageCount."""
    values: dict[str, object] = {
        "TopicName": topic.name,
        "CreateTime": topic.created_s,
        "LastModifyTime": topic.modified_s,
        "MaximumMessageSize": topic.settings.size_max,
        "MessageRetentionPeriod": KEPT_S,
        "MessageCount": count,
        "LoggingEnabled": topic.settings.is_logging,
    }
    return "".join(xmlout.element(name, value) for name, value in values.items())


def described_subscription(topic: str, one: TopicSubscription) -> str:
    """Return a subscription as elements of a document."""
    values: dict[str, object] = {
        "SubscriptionName": one.name,
        "Subscriber": OWNER,
        "TopicOwner": OWNER,
        "TopicName": topic,
        "Endpoint": one.endpoint,
        "NotifyStrategy": one.strategy.value,
        "NotifyContentFormat": one.format.value,
        "CreateTime": one.created_s,
        "LastModifyTime": one.modified_s,
    }
    if one.tag:
        values["FilterTag"] = one.tag
    return "".join(xmlout.element(name, value) for name, value in values.items())
