"""Handlers that kopf calls: they turn events into keys of the worklist, and do nothing else.

kopf watches and brings no state of its own onto our objects: no edge handlers, no finalizers.  A pod's event also goes
to the sightings, which the failover loops read.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import kopf

from gantry_operator.account import Account
from gantry_operator.api.brokercluster import GROUP, LABEL_CLUSTER, LABEL_COMPONENT, PLURAL, VERSION, Key
from gantry_operator.api.declared import Kind
from gantry_operator.declared.waking import Waking
from gantry_operator.hearing import Heard, session
from gantry_operator.sightings import Sightings

WATCHED = (PLURAL, "pods", "statefulsets")
WATCHED_IF_KNOWN = tuple(each.value for each in Kind)  # an operator that is newer than its definitions still fails over
_OWNED = ("pods", "statefulsets.apps")  # only those with our label are watched
_EXIT_S = 25.0  # below the 30 s that a pod has


def registry(
    add: Callable[[Key], None], sightings: Sightings, account: Account, heard: Heard
) -> kopf.OperatorRegistry:  # fmt: skip
    """Return kopf's registry with a handler for each watched kind."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(registry=handlers, id="login")
    async def login(**_: Any) -> kopf.AiohttpSession:
        """Open a session for kopf, which closes it, and calls again when the API server refuses the token."""
        return kopf.AiohttpSession(server=account.server, aiohttp_session=session(account, heard))

    @kopf.on.startup(registry=handlers, id="settings")
    async def settings(settings: kopf.OperatorSettings, **_: Any) -> None:
        configure(settings)

    wishes = EventFilter()

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=handlers, id="cluster")
    async def cluster(event: Any, body: kopf.Body, **_: Any) -> None:
        key = Key(str(body.metadata.namespace), str(body.metadata.name))
        if wishes.is_news(key, body, event["type"] == "DELETED"):
            add(key)

    @kopf.on.event("", "v1", "pods", labels={LABEL_CLUSTER: kopf.PRESENT}, registry=handlers, id="pod")
    async def pod(event: Any, body: kopf.Body, **_: Any) -> None:
        if body.metadata.labels.get(LABEL_COMPONENT) == "broker":
            sightings.saw(body, event["type"] == "DELETED")
        add(Key(str(body.metadata.namespace), str(body.metadata.labels[LABEL_CLUSTER])))

    @kopf.on.event("apps", "v1", "statefulsets", labels={LABEL_CLUSTER: kopf.PRESENT}, registry=handlers, id="set")
    async def stateful_set(body: kopf.Body, **_: Any) -> None:
        add(Key(str(body.metadata.namespace), str(body.metadata.labels[LABEL_CLUSTER])))

    return handlers


def watch_declared(handlers: kopf.OperatorRegistry, waking: Waking) -> None:
    """Register handlers of BrokerTopics and ConsumerGroups; an event of a cluster may trigger passes of its objects."""

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=handlers, id="declared-cluster")
    async def cluster(event: Any, body: kopf.Body, **_: Any) -> None:
        key = Key(str(body.metadata.namespace), str(body.metadata.name))
        waking.heard_of_cluster(key, int(body.metadata.get("generation", 0)), event["type"] == "DELETED")

    @kopf.on.event(GROUP, VERSION, Kind.TOPIC.value, registry=handlers, id="topic")
    async def topic(event: Any, body: kopf.Body, **_: Any) -> None:
        waking.heard(Kind.TOPIC, body, event["type"] == "DELETED")

    @kopf.on.event(GROUP, VERSION, Kind.CONSUMER_GROUP.value, registry=handlers, id="group")
    async def group(event: Any, body: kopf.Body, **_: Any) -> None:
        waking.heard(Kind.CONSUMER_GROUP, body, event["type"] == "DELETED")


class EventFilter:
    """The last specification of each object: events that change only the status, mostly by us, are ignored."""

    def __init__(self) -> None:
        self._seen: dict[Key, object] = {}

    def is_news(self, key: Key, body: Mapping[str, Any], is_deleted: bool) -> bool:
        """Return whether anything but the object's status changed."""
        about = body["metadata"]
        asked = [about.get(each) for each in ("uid", "generation", "annotations", "labels", "deletionTimestamp")]
        if is_deleted:
            self._seen.pop(key, None)
            return True
        former, self._seen[key] = self._seen.get(key), copy.deepcopy(asked)
        return former != asked


class Patience:
    """Pauses between the tries of one request, without an end: after the last one kopf would stop watching."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain((1.0, 1.0, 2.0, 3.0, 5.0), itertools.repeat(8.0))


def configure(settings: kopf.OperatorSettings) -> None:
    """Set kopf's settings: everything but watching is switched off, and every wait has a limit."""
    settings.persistence.finalizer = f"{GROUP}/kopf"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP, v1=False)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP)
    settings.posting.enabled = False
    settings.posting.loggers = False
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.networking.request_timeout = 30.0
    settings.networking.connect_timeout = 5.0
    settings.networking.enforce_retry_after = True
    settings.networking.error_backoffs = Patience()
    settings.watching.server_timeout = 300  # whole seconds: kopf passes it on, and the API server reads no others
    settings.watching.client_timeout = 310.0
    settings.watching.connect_timeout = 20.0
    settings.watching.inactivity_timeout = 70.0
    settings.watching.chunk_size = 500
    for kind in _OWNED:
        settings.watching.label_selectors[kind] = LABEL_CLUSTER
    settings.queueing.worker_limit = None
    settings.queueing.error_delays = (1.0, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 34.0, 60.0)
    settings.execution.default_backoff = 5.0
    settings.background.cancellation_polling = 1.0
    settings.background.instant_exit_timeout = 1.0
    settings.process.ultimate_exiting_timeout = _EXIT_S
