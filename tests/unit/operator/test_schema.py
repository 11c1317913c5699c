"""The definitions of our kinds: the repository has what the code says; what stays is refused by its name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gantry_operator.api import groupdefinition, topicdefinition
from gantry_operator.api.definitions import files
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
}  # fmt: skip


def fields(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """Every field that a person writes, objects left out."""
    for name, each in schema["properties"].items():
        where = f"{path}.{name}"
        if each["type"] == "object" and "properties" in each and "requests" not in each["properties"]:
            yield from fields(each, where)
        else:
            yield where, each


def spec() -> Schema:
    root = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    found: Schema = root["properties"]["spec"]
    return found


@pytest.mark.parametrize("folder", ["crds", "charts/gantrymq/crds"])
def test_the_definitions_in_the_repository_are_what_the_code_says(folder: str) -> None:
    assert {path.name: path.read_text() for path in (ROOT / folder).iterdir()} == files(), "make crds"


@pytest.mark.parametrize("made", [topicdefinition.definition(), groupdefinition.definition()])
def test_every_field_of_a_declared_kind_is_described_and_bounded(made: Schema) -> None:
    root = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for path, field in fields(root["properties"]["spec"], "spec"):
        assert field["description"].endswith("."), path
        bounds = {"string": {"maxLength", "enum", "format"}, "integer": {"maximum"}, "array": {"maxItems"}}
        assert field["type"] == "boolean" or bounds[field["type"]] & field.keys(), path


@pytest.mark.parametrize(("path", "field"), [pytest.param(*each, id=each[0]) for each in fields(spec(), "spec")])
def test_a_field_has_a_description_a_default_and_a_word_about_its_change(path: str, field: Schema) -> None:
    assert ("default" in field) is (path not in NO_DEFAULT)
    assert field.get("description", "x.").endswith(".")
    rules = [each for each in field.get("x-kubernetes-validations", []) if each["rule"] == "self == oldSelf"]
    assert bool(rules) is (path in STAYS)
    assert all(each["message"].startswith(path) for each in rules)
