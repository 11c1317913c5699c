"""What a client has to know of a cluster, as a Secret in the form of servicebinding.io; `status.binding.name` names it.

A workload takes NAMESRV_ADDR from its key `nameservers`, or has the whole Secret mounted by something that binds
services.  There is nothing secret in it as long as brokers know no users; it is a Secret because such things look for
one.
"""

from __future__ import annotations

import base64

from gantry_operator.api.brokercluster import BrokerCluster, Document
from gantry_operator.desired.labels import of_nameservers, owned
from gantry_operator.desired.nameservers import PORT

KIND = "servicebinding.io/rocketmq"


def name_of(cluster: BrokerCluster) -> str:
    """Of the Secret."""
    return f"{cluster.key.name}-binding"


def objects(cluster: BrokerCluster) -> list[Document]:
    """The Secret."""
    data = {key: base64.b64encode(text.encode()).decode() for key, text in entries(cluster).items()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name_of(cluster)}, "type": KIND, "data": data}
    return [owned(cluster, secret, of_nameservers(cluster))]


def entries(cluster: BrokerCluster) -> dict[str, str]:
    """Key -> text.  The Service leads to any name server; a client that knows each by name goes on when one is gone."""
    home, each = cluster.key.namespace, cluster.nameserver
    pods = [f"{each}-{number}.{each}.{home}:{PORT}" for number in range(cluster.nameservers)]
    return {
        "type": "rocketmq",
        "provider": "gantrymq",
        "host": f"{cluster.key.name}-nameserver.{home}",
        "port": str(PORT),
        "nameservers": ";".join(pods),
    }
