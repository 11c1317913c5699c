"""The schema of a BrokerCluster's `status`, which the operator writes (module `status`); pure."""

from __future__ import annotations

from gantry_operator.api.brokerfields import GROUPS_MAX
from gantry_operator.api.doorspec import DOORS, DoorKind
from gantry_operator.api.fields import Schema, conditions, count, keyed, shown, text

REQUESTS_MAX = 8


def cluster_status() -> Schema:
    """Return the schema of a BrokerCluster's `status`."""
    return shown(
        "What was last observed; written by the operator alone.",
        {
            "observedGeneration": count("Generation (metadata.generation) that this status speaks of."),
            "groupCount": count("Number of groups that are wanted, for `kubectl scale`."),
            "selector": text("Label selector of the brokers' pods, for `kubectl scale`."),
            "image": text("Images that pods run, that of most pods first."),
            "mode": text("Replication that is in force by specification: SYNC_MASTER or ASYNC_MASTER."),
            "flush": text("Flush that is in force by specification: SYNC_FLUSH or ASYNC_FLUSH."),
            "binding": shown(
                "How clients find the cluster, in the form of servicebinding.io.",
                {"name": text("Secret of this namespace with `nameservers`, `host` and `port`.")},
            ),
            **{
                each.component: shown(f"The {each.words}; not there without {each.field}.", _door(each))
                for each in DOORS
            },
            "summary": shown("The cluster in numbers, each as FOUND/WANTED, for columns.", _summary()),
            "conditions": conditions(),
            "requests": keyed(
                "What became of requests by annotation (force-failover, manual-rolling-update).",
                _request(),
                "name",
                REQUESTS_MAX,
            ),
            "groups": keyed("Each group, as its register says.", _group(), "name", GROUPS_MAX),
        },
    )


def _summary() -> Schema:
    return {
        "masters": text("Groups whose master accepts messages."),
        "inSync": text("Members that are in the in-sync set of their group."),
        "ready": text("Members whose pods are ready."),
        "updated": text("Members whose pods are as the specification wants them."),
        "nameservers": text("Name servers whose pods are ready."),
    }


def _door(kind: DoorKind) -> Schema:
    return {
        "replicas": count(f"Number of {kind.words} that are wanted."),
        "ready": count(f"Number of {kind.words} whose pods are ready."),
        "endpoint": text(
            "Address for clients, HOST:PORT: within this Kubernetes, or that of the load balancer. Empty: the load "
            "balancer has none yet."
        ),
        "nodePort": count(f"Port of every node that leads to the {kind.words}. Not there: the Service has none."),
    }


def _request() -> Schema:
    return shown(
        "One request.",
        {
            "name": text("Name of the annotation."),
            "value": text("Value of the annotation."),
            "outcome": text("What became of it: under way, waiting, done, outdated or refused, with the reason."),
        },
        ["name"],
    )


def _group() -> Schema:
    return shown(
        "One group.",
        {
            "name": text("Name within the cluster: b0, b1 and so on."),
            "lease": text("Name of the Lease that is the group's register."),
            "epoch": count("Number of the mastership; each failover or handover raises it. 0: no register yet."),
            "phase": text(
                "State of the register: Active, Sealed (an election is under way), Bootstrapping (the first one), "
                "Recovering (after a loss of power), None (no register yet), Unknown (it cannot be read)."
            ),
            "syncSet": {
                "description": "Ordinals of the members that count for an acknowledgement, the master included.",
                "type": "array", "items": {"description": "Ordinal of a member's pod.", "type": "integer"},
            },
            "lostMessages": count(
                "Messages that ASYNC_MASTER had acknowledged and that a failover took, over all time. Not there: none."
            ),
            "master": shown(
                "The master; not there while there is none.",
                {"ordinal": count("Ordinal of its pod."), "pod": text("Name of its pod.")},
            ),
        },
        ["name"],
    )  # fmt: skip
