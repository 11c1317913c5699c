"""The definition of BrokerCluster: the repository has what the code says, and no field is without a default."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gantry_operator.api.schema import FILE, Schema, definition, text
from testkit.sources import ROOT

MAY_CHANGE = {
    "spec.brokers.groups", "spec.image", "spec.nameserver.replicas", "spec.nameserver.resources",
    "spec.brokers.antiAffinity", "spec.brokers.config", "spec.brokers.resources",
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
def test_the_definition_in_the_repository_is_what_the_code_says(folder: str) -> None:
    assert (ROOT / folder / FILE).read_text() == text(), "make crds"


@pytest.mark.parametrize(("path", "field"), [pytest.param(*each, id=each[0]) for each in fields(spec(), "spec")])
def test_a_field_has_a_default_a_description_and_a_word_about_its_change(path: str, field: Schema) -> None:
    assert "default" in field and field["description"].endswith(".")
    rules = [each for each in field.get("x-kubernetes-validations", []) if each["rule"] == "self == oldSelf"]
    assert bool(rules) is (path not in MAY_CHANGE)
    assert all(each["message"].startswith(path) for each in rules)
