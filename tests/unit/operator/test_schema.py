"""The definitions of our kinds: the repository has what the code says; what stays is refused by its name."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from gantry.broker.settings.config import HOT
from gantry.replication.members import MEMBERS_MAX
from gantry_operator.api import groupdefinition, topicdefinition
from gantry_operator.api.brokerfields import REPLICAS_MAX
from gantry_operator.api.definitions import definitions, files
from gantry_operator.api.schema import Schema, definition
from testkit.sources import ROOT

STAYS = {
    "spec.brokers.storage.size", "spec.brokers.storage.storageClassName", "spec.brokers.storage.accessMode",
}  # fmt: skip
# Not given: as the profile, or another field, says.
NO_DEFAULT = {
    "spec.brokers.replication.mode", "spec.brokers.replication.maxLag", "spec.brokers.replication.minInSync",
    "spec.brokers.flush.mode", "spec.brokers.flush.interval", "spec.brokers.failover.suspectAfter",
    "spec.brokers.failover.leaseDuration",
    "spec.proxy.replicas", "spec.queues.replicas",  # the Deployment's own number
    "spec.queues.users.secretName",  # must be given
    # Passed on only where they are given.
    *(
        f"spec.{whose}.podTemplate.{field}"
        for whose in ("brokers", "nameserver", "proxy", "queues")
        for field in (
            *(f"affinity.{each}" for each in ("nodeAffinity", "podAffinity", "podAntiAffinity")),
            *(f"securityContext.{each}" for each in ("runAsUser", "runAsGroup", "fsGroup", "runAsNonRoot")),
        )
    ),
}  # fmt: skip
CHANGE = re.compile(r"\bA change\b|\bCannot be changed\b|\bMay grow\b")


def root_of(made: Schema) -> Schema:
    found: Schema = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def fields(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """Every field that a person writes, objects left out."""
    for name, each in schema["properties"].items():
        where = f"{path}.{name}"
        if each["type"] == "object" and "properties" in each and "requests" not in each["properties"]:
            yield from fields(each, where)
        else:
            yield where, each


def spec() -> Schema:
    found: Schema = root_of(definition())["properties"]["spec"]
    return found


@pytest.mark.parametrize("folder", ["crds", "charts/gantrymq/crds"])
def test_the_definitions_in_the_repository_are_what_the_code_says(folder: str) -> None:
    assert {path.name: path.read_text() for path in (ROOT / folder).iterdir()} == files(), "make crds"


def every(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Whatever `kubectl explain` can be asked for."""
    for name, each in schema.get("properties", {}).items():
        if each == {"type": "object"}:  # metadata
            continue
        yield f"{path}.{name}", each
        yield from every(each, f"{path}.{name}")
    if "items" in schema:
        yield from every(schema["items"], path)


def says(field: Schema, value: object) -> bool:
    """Whether a description has the default or, for an empty one, what holds without it."""
    told = field["description"]
    if value in ("", [], {}):
        return "Empty:" in told or "Default:" in told or not isinstance(value, str)
    return f"Default: {str(value).lower() if isinstance(value, bool) else value}" in told


@pytest.mark.parametrize("made", definitions(), ids=lambda made: str(made["spec"]["names"]["kind"]))
def test_explaining_reads_as_documentation(made: Schema) -> None:
    """Each field says what it does; those that users set also their default, and what becomes of a change."""
    root = root_of(made)
    for path, field in [("", root), *every(root)]:
        told = field.get("description", "")
        assert len(told.split()) >= 3 and told[0].isupper() and told.endswith("."), f"{path}: {told!r}"
        assert not re.match(r"(As|Of) a |What is (wanted|planned)|Empty:|See ", told), f"{path}: {told!r}"
        if "default" in field and not path.startswith(".status"):
            assert "properties" in field or says(field, field["default"]), f"{path}: no default in {told!r}"
    for path, field in fields(root["properties"]["spec"], "spec"):
        above = [told for at, told in above_all(root) if f"{path}.".startswith(f"{at}.")]
        assert CHANGE.search(field["description"]) or any(map(CHANGE.search, above)), f"{path}: what does a change do?"


def above_all(root: Schema) -> list[tuple[str, str]]:
    return [(path.removeprefix("."), field["description"]) for path, field in every(root)]


@pytest.mark.parametrize("made", [topicdefinition.definition(), groupdefinition.definition()])
def test_every_field_of_a_declared_kind_is_bounded(made: Schema) -> None:
    for path, field in fields(root_of(made)["properties"]["spec"], "spec"):
        bounds = {"string": {"maxLength", "enum", "format"}, "integer": {"maximum"}, "array": {"maxItems"}}
        assert field["type"] == "boolean" or bounds[field["type"]] & field.keys(), path


@pytest.mark.parametrize(("path", "field"), [pytest.param(*each, id=each[0]) for each in fields(spec(), "spec")])
def test_a_field_has_a_default_and_is_refused_where_it_cannot_change(path: str, field: Schema) -> None:
    assert ("default" in field) is (path not in NO_DEFAULT)
    rules = [each for each in field.get("x-kubernetes-validations", []) if each["rule"] == "self == oldSelf"]
    assert bool(rules) is (path in STAYS)
    assert all(each["message"].startswith(path) for each in rules)


def test_the_fields_agree_with_what_brokers_take() -> None:
    brokers = root_of(definition())["properties"]["spec"]["properties"]["brokers"]["properties"]
    told = brokers["config"]["description"]
    assert set(re.findall(r"`([\w.]+)`", told)) == HOT, "these keys replace no pod"
    for path in ("operator/docs/operator.md", "broker/docs/divergence.md"):
        text = (ROOT / path).read_text()
        assert all(f"`{key}`" in text for key in HOT), path
    assert brokers["replicasPerGroup"]["maximum"] == REPLICAS_MAX <= MEMBERS_MAX
