"""What kopf calls: events become keys in the worklist, and nothing else happens here.

kopf watches and brings no state of its own onto our objects: no edge handlers, no finalizers.  A pod's event also goes
to the sightings, which the failover loops read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kopf

from gantry_operator.api.brokercluster import GROUP, LABEL_CLUSTER, LABEL_COMPONENT, PLURAL, VERSION, Key
from gantry_operator.sightings import Sightings

REQUEST_S, CONNECT_S, INACTIVE_S = 30.0, 5.0, 70.0


def registry(add: Callable[[Key], None], sightings: Sightings) -> kopf.OperatorRegistry:
    """Every handler, by what it watches."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(registry=handlers, id="login")
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        """The token is read anew whenever the API server wants another one."""
        return kopf.login_with_service_account(**kwargs)

    @kopf.on.startup(registry=handlers, id="settings")
    def settings(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        settings.scanning.disabled = True
        settings.networking.request_timeout = REQUEST_S
        settings.networking.connect_timeout = CONNECT_S
        settings.watching.server_timeout = 300
        settings.watching.client_timeout = 310
        settings.watching.connect_timeout = 20
        settings.execution.default_backoff = 5

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=handlers, id="cluster")
    async def cluster(namespace: str | None, name: str | None, **_: Any) -> None:
        if namespace and name:
            add(Key(namespace, name))

    @kopf.on.event("", "v1", "pods", labels={LABEL_CLUSTER: kopf.PRESENT}, registry=handlers, id="pod")
    async def pod(event: Any, body: kopf.Body, **_: Any) -> None:
        if body.metadata.labels.get(LABEL_COMPONENT) == "broker":
            sightings.saw(body, event["type"] == "DELETED")
        add(Key(str(body.metadata.namespace), str(body.metadata.labels[LABEL_CLUSTER])))

    @kopf.on.event("apps", "v1", "statefulsets", labels={LABEL_CLUSTER: kopf.PRESENT}, registry=handlers, id="set")
    async def stateful_set(body: kopf.Body, **_: Any) -> None:
        add(Key(str(body.metadata.namespace), str(body.metadata.labels[LABEL_CLUSTER])))

    return handlers
