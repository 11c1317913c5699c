"""All calls below /topics: what each of them reads, does and answers.

    PUT    /topics/T                     create; ?metaoverride=true: set attributes
    GET    /topics/T, /topics            attributes; list
    DELETE /topics/T
    POST   /topics/T/messages            publish
    PUT    /topics/T/subscriptions/S     subscribe; ?metaoverride=true: set attributes
    GET    /topics/T/subscriptions[/S]   list; attributes
    DELETE /topics/T/subscriptions/S     unsubscribe
"""

from __future__ import annotations

from collections.abc import Iterable

from gantry.queues import documents, subscriptions, userproperties, xmlin, xmlout
from gantry.queues.attributes import whole
from gantry.queues.calls import CallAnswer, QueueCall
from gantry.queues.faults import QueueFaultError, invalid, malformed
from gantry.queues.masters import paged
from gantry.queues.publishing import Publishes
from gantry.queues.subscriptions import TopicOptions, TopicSubscription, check_name, check_tag
from gantry.queues.topictable import KnownTopics, of_name

PAGE_MAX = 1_000
_DONE = CallAnswer(204)


class TopicDoor:
    """The door of /topics.  may_push: whether subscriptions may have HTTP endpoints."""

    def __init__(self, topics: KnownTopics, publishes: Publishes, may_push: bool) -> None:
        self._topics = topics
        self._publishes = publishes
        self._may_push = may_push
        self._of_topic = {"PUT": self._put, "GET": self._show, "DELETE": self._drop}
        self._of_subscription = {"PUT": self._subscribe, "GET": self._subscription, "DELETE": self._unsubscribe}

    async def serve(self, call: QueueCall) -> CallAnswer:
        """Answer one call."""
        path, method = call.path, call.method
        if len(path) == 3 and path[2] == "messages" and method == "POST":
            return await self._publish(call, path[1])
        if len(path) == 2 and method in self._of_topic:
            return await self._of_topic[method](call, path[1])
        if len(path) == 1 and method == "GET":
            return await self._list(call)
        if len(path) == 3 and path[2] == "subscriptions" and method == "GET":
            return await self._subscriptions(call, path[1])
        if len(path) == 4 and path[2] == "subscriptions" and method in self._of_subscription:
            return await self._of_subscription[method](call, path[1], check_name(path[3], "Subscription"))
        text = f"{method[:20]} {call.target[:200]} is no call; see broker/docs/topics.md for all of them"
        raise QueueFaultError(405, "MethodNotAllowed", text)

    # Topics

    async def _put(self, call: QueueCall, name: str) -> CallAnswer:
        root = _root(call)
        settings = subscriptions.asked_topic(root, TopicOptions())
        if _is_override(call):
            await self._topics.alter(name, lambda old: subscriptions.asked_topic(root, old))
            return _DONE
        is_new = await self._topics.create(name, settings)
        return CallAnswer(201 if is_new else 204, headers={"Location": _url(call, name)})

    async def _show(self, call: QueueCall, name: str) -> CallAnswer:
        topic = await self._topics.get(name)
        count = await self._topics.count(name)
        return CallAnswer(200, xmlout.document("Topic", subscriptions.described_topic(topic, count)))

    async def _drop(self, call: QueueCall, name: str) -> CallAnswer:
        await self._topics.delete(name)
        return _DONE

    async def _list(self, call: QueueCall) -> CallAnswer:
        found, following = await self._topics.page(*_page(call))
        has_meta = _has_meta(call)
        items = [
            xmlout.element("TopicURL", _url(call, one.name))
            + (subscriptions.described_topic(one, 0) if has_meta else "")
            for one in found
        ]
        return _listed("Topic", items, following)

    async def _publish(self, call: QueueCall, name: str) -> CallAnswer:
        topic = await self._topics.get(name)
        root = xmlin.read(call.body)
        if root.name != "Message":
            raise malformed(f"the root of the document is {root.name[:40]!r}, expected Message")
        texts = root.child_texts()
        tag = check_tag("MessageTag", texts.get("MessageTag", "").strip())
        more = userproperties.read(root)
        done = await self._publishes.publish(topic, texts.get("MessageBody", "").encode(), tag, more)
        return CallAnswer(201, xmlout.document("Message", documents.posted(done)))

    # Subscriptions

    async def _subscribe(self, call: QueueCall, name: str, subscription: str) -> CallAnswer:
        root = _root(call)
        if _is_override(call):
            await self._topics.resubscribe(
                name, subscription, lambda old: subscriptions.asked_subscription(root, old, is_new=False)
            )
            return _DONE
        base = TopicSubscription(subscription, "", "")
        wanted = subscriptions.asked_subscription(root, base, is_new=True)
        if not wanted.queue and not self._may_push:
            text = "this server does not push to HTTP endpoints; subscribe a queue, or start it with --topic-push"
            raise invalid(f"Endpoint {wanted.endpoint[:100]}: {text}")
        is_new = await self._topics.subscribe(name, wanted)
        url = f"{_url(call, name)}/subscriptions/{subscription}"
        return CallAnswer(201 if is_new else 204, headers={"Location": url})

    async def _subscription(self, call: QueueCall, name: str, subscription: str) -> CallAnswer:
        found = of_name(await self._topics.get(name), subscription)
        return CallAnswer(200, xmlout.document("Subscription", subscriptions.described_subscription(name, found)))

    async def _unsubscribe(self, call: QueueCall, name: str, subscription: str) -> CallAnswer:
        await self._topics.unsubscribe(name, subscription)
        return _DONE

    async def _subscriptions(self, call: QueueCall, name: str) -> CallAnswer:
        topic = await self._topics.get(name)
        table = {one.name: one for one in topic.subscriptions()}
        found, following = paged(table, *_page(call))
        url, has_meta = f"{_url(call, name)}/subscriptions", _has_meta(call)
        items = [
            xmlout.element("SubscriptionURL", f"{url}/{one.name}")
            + (subscriptions.described_subscription(name, one) if has_meta else "")
            for one in found
        ]
        return _listed("Subscription", items, following)


def _root(call: QueueCall) -> xmlin.XmlElement | None:
    return xmlin.read(call.body) if call.body else None


def _is_override(call: QueueCall) -> bool:
    return call.query.get("metaoverride", "").lower() == "true"


def _has_meta(call: QueueCall) -> bool:
    return call.headers.get("x-mns-with-meta", "").lower() == "true"


def _page(call: QueueCall) -> tuple[str, str, int]:
    given = call.headers
    count = whole("x-mns-ret-number", given.get("x-mns-ret-number") or str(PAGE_MAX), 1, PAGE_MAX)
    return given.get("x-mns-prefix", ""), given.get("x-mns-marker", ""), count


def _listed(item: str, contents: Iterable[str], following: str) -> CallAnswer:
    items = "".join(f"<{item}>{content}</{item}>" for content in contents)
    marker = xmlout.element("NextMarker", following) if following else ""
    return CallAnswer(200, xmlout.document(f"{item}s", items + marker))


def _url(call: QueueCall, name: str) -> str:
    return f"http://{documents.shown(call.host)[:255]}/topics/{name}"
