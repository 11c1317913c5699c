from __future__ import annotations

import base64
import json
import random

from gantry.queues import notifications, xmlin
from gantry.queues.notifications import PublishedMessage
from gantry.queues.subscriptions import NotifyFormat, NotifyStrategy, TopicSubscription


def subscription(kind: NotifyFormat) -> TopicSubscription:
    return TopicSubscription("s", "0" * 16, "http://x", format=kind)


def message(body: bytes, tag: str = "") -> PublishedMessage:
    return PublishedMessage("t", "ID", body, tag, 1_700_000_000_000)


def test_the_simplified_form_is_the_body_whatever_it_is() -> None:
    body = bytes(range(256))
    assert notifications.notification(message(body), subscription(NotifyFormat.SIMPLIFIED)) == body


def test_both_documents_say_the_same() -> None:
    one = message("<ä>&\r\n".encode(), "red")
    root = xmlin.read(notifications.notification(one, subscription(NotifyFormat.XML)))
    found = json.loads(notifications.notification(one, subscription(NotifyFormat.JSON)))
    assert root.name == "Notification"
    assert root.child_texts() == {name: str(value) for name, value in found.items()}
    assert found["Message"] == "<ä>&\r\n" and found["MessageTag"] == "red" and found["PublishTime"] == 1_700_000_000_000


def test_a_body_that_is_no_text_stands_in_a_document_as_base64() -> None:
    for body in (b"\xff\xfe", b"\x00"):
        for kind in (NotifyFormat.XML, NotifyFormat.JSON):
            text = notifications.notification(message(body), subscription(kind))
            assert base64.b64encode(body) in text


def test_backoff_tries_three_times_more() -> None:
    chance = random.Random(1)
    waits = [notifications.retry_after_s(NotifyStrategy.BACKOFF, failures, chance) for failures in (1, 2, 3, 4)]
    assert waits[3] is None
    assert all(wait is not None and 10 <= wait <= 20 for wait in waits[:3]) and len(set(waits)) == 4


def test_decay_tries_for_a_day() -> None:
    chance = random.Random(1)
    waits = [notifications.retry_after_s(NotifyStrategy.DECAY, failures, chance) for failures in range(1, 178)]
    assert waits[:11] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 512] and waits[175:] == [512, None]
    assert abs(sum(wait for wait in waits if wait is not None) - 86_400) < 512
    assert notifications.wait_s(NotifyStrategy.DECAY, 100_000, chance) == 512, "an outage is tried without an end"
