"""The schema of the value `spark` of the chart gantrymq-cluster: Spark jobs of a cluster; pure.

The chart makes objects of the spark-operator, whose definitions check the rest; here are the fields that the chart
itself reads.  Unknown fields are not allowed, so that helm refuses a field that nothing reads.
"""

from __future__ import annotations

from typing import Any

# A SparkApplication is the beginning of the names of a Service and of pods.
_NAME = "^[a-z]([-a-z0-9]{0,40}[a-z0-9])?$"
_NAMESPACE = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
_ENVIRONMENT = "^[A-Za-z_][A-Za-z0-9_]*$"
_FILE = "^[-._A-Za-z0-9]+$"
_SIZE = "^[1-9][0-9]*([KMGTP]i?)?$"
_MEMORY = "^[1-9][0-9]*[mg]$"
_TIME = "^([0-9]+(ms|s|m|h))+$"
JOBS = ("archive", "audit", "idempotent", "replay", "resend", "restore", "triage")
_TEXT: dict[str, Any] = {"type": "string"}
_TEXTS: dict[str, Any] = {"type": "object", "additionalProperties": _TEXT}


def image(what: str) -> dict[str, Any]:
    """A reference as one string, or its parts."""
    return {
        "description": f"{what} A reference as one string, or its parts; an empty tag is the chart's appVersion.",
        "type": ["object", "string"],
        "minLength": 1,
        "additionalProperties": False,
        "required": ["repository"],
        "properties": {
            "repository": {"type": "string", "minLength": 1},
            "tag": {"type": ["string", "null"], "pattern": "^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$"},
            "digest": {"type": ["string", "null"], "pattern": "^([a-z0-9]+:[0-9a-f]{32,})?$"},
        },
    }


def values() -> dict[str, Any]:
    """Return the JSON schema of the value `spark`."""
    volume = {
        "size": {"type": "string", "pattern": _SIZE},
        "storageClassName": _TEXT,
        "accessMode": {"enum": ["ReadWriteMany", "ReadWriteOnce"]},
    }
    interval = {"type": "string", "pattern": _TIME}
    monitoring = {"podMonitor": {"type": "boolean"}, "labels": _TEXTS, "interval": interval}
    return _closed(
        "Spark jobs on this cluster's topics, for the spark-operator.",
        {
            "namespace": {"type": "string", "pattern": _NAMESPACE},
            "image": image("Image of driver and executors."),
            "imagePullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
            "imagePullSecrets": {"type": "array", "items": _TEXT},
            "version": {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
            "volume": _closed("One volume for checkpoints and archives of all jobs.", volume),
            "monitoring": _closed("A PodMonitor of the drivers.", monitoring),
            "jobs": {"type": "array", "items": _job()},
        },
    )


def _job() -> dict[str, Any]:
    key = _closed("A key of a Secret.", {"name": {"type": "string", "minLength": 1}, "key": _TEXT})
    made = _closed(
        "A SparkApplication, or with a schedule a ScheduledSparkApplication.",
        {
            "name": {"type": "string", "pattern": _NAME},
            "job": {"enum": list(JOBS)},
            "arguments": {"type": "array", "items": _TEXT},
            "schedule": _TEXT,
            "executors": {"type": "integer", "minimum": 1},
            "memory": {"type": "string", "pattern": _MEMORY},
            "secrets": _named(_ENVIRONMENT, {**key, "required": ["name", "key"]}),
            "files": _named(_FILE, _TEXT),
            "nodeSelector": _TEXTS,
        },
    )
    return {**made, "required": ["name", "job"]}


def _closed(what: str, properties: dict[str, Any]) -> dict[str, Any]:
    return {"description": what, "type": "object", "additionalProperties": False, "properties": properties}


def _named(pattern: str, each: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "propertyNames": {"pattern": pattern}, "additionalProperties": each}
