"""The connection data of a cluster, as a Secret in the form of servicebinding.io; `status.binding.name` names it.

A workload takes NAMESRV_ADDR from its key `nameservers`, or has the whole Secret mounted by a service binding.  Its
content is not confidential as long as brokers have no users; it is a Secret because service bindings expect one.
"""

from __future__ import annotations

import base64

from gantry_operator.api.brokercluster import BrokerCluster, Document
from gantry_operator.desired.labels import of_nameservers, owned
from gantry_operator.desired.nameservers import PORT

KIND = "servicebinding.io/rocketmq"


def name_of(cluster: BrokerCluster) -> str:
    """Return the name of the Secret."""
    return f"{cluster.key.name}-binding"


def objects(cluster: BrokerCluster) -> list[Document]:
    """Return the Secret, as a list of one document."""
    data = {key: base64.b64encode(text.encode()).decode() for key, text in entries(cluster).items()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name_of(cluster)}, "type": KIND, "data": data}
    return [owned(cluster, secret, of_nameservers(cluster))]


def entries(cluster: BrokerCluster) -> dict[str, str]:
    """Return the Secret's entries as texts by key; `nameservers` lists each server, so clients survive a lost one."""
    home, each = cluster.key.namespace, cluster.nameserver
    pods = [f"{each}-{number}.{each}.{home}:{PORT}" for number in range(cluster.nameservers)]
    return {
        "type": "rocketmq",
        "provider": "gantrymq",
        "host": f"{cluster.key.name}-nameserver.{home}",
        "port": str(PORT),
        "nameservers": ";".join(pods),
    }
