from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantry.queues import userproperties, xmlin, xmlout
from gantry.queues.faults import QueueFaultError

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40).filter(xmlout.is_text)
NAMES = st.from_regex(r"[a-z][0-9A-Za-z_.-]{0,20}", fullmatch=True)


def properties(kind: str, item: str, *values: tuple[str, str, str]) -> str:
    inner = ""
    for name, value, type_ in values:
        inner += f"<{item}>" + "".join(
            xmlout.element(key, text) for key, text in {"Name": name, "Value": value, "Type": type_}.items()
        ) + f"</{item}>"
    return f"<{kind}>{inner}</{kind}>"


def user(*values: tuple[str, str, str]) -> str:
    return properties("UserProperties", "PropertyValue", *values)


def read(content: str) -> dict[str, str]:
    return userproperties.read(xmlin.read(f"<Message>{content}</Message>".encode()))


@given(st.dictionaries(NAMES, TEXT, max_size=10), st.sampled_from(["", "g"]))
def test_what_was_sent_comes_back(values: dict[str, str], group: str) -> None:
    content = xmlout.element("MessageGroupId", group) if group else ""
    content += user(*((name, value, "STRING") for name, value in values.items())) if values else ""
    found = read(content)
    assert userproperties.written(found) == content
    assert userproperties.kept({**found, "UNIQ_KEY": "x", "TAGS": "y"}) == found
    assert all(found[name] == value for name, value in values.items()), "other protocols see them under their names"


def test_all_types_and_system_properties_come_back() -> None:
    content = user(("n", "-1.5e3", "NUMBER"), ("b", "true", "BOOLEAN"), ("y", "AAE=", "BINARY"))
    content += properties("SystemProperties", "SystemPropertyValue", ("traceparent", "00-x", "STRING"))
    assert userproperties.written(read(content)) == content


def test_what_other_producers_set_is_not_shown() -> None:
    assert userproperties.written({"colour": "blue", "GQ_USER": "missing:S,odd"}) == ""


@pytest.mark.parametrize(
    "one",
    [
        ("", "v", "STRING"), ("a b", "v", "STRING"), ("n" * 129, "v", "STRING"), ("TAGS", "v", "STRING"),
        ("GQ_ID", "v", "STRING"), ("n", "", "STRING"), ("n", "v", "TEXT"), ("n", "x", "NUMBER"), ("n", "٣", "NUMBER"),
        ("n", "True", "BOOLEAN"), ("n", "=", "BINARY"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_is_refused(one: tuple[str, str, str]) -> None:
    with pytest.raises(QueueFaultError):
        read(user(one))


def test_names_that_are_there_twice_and_too_much_of_all_are_refused() -> None:
    twice = user(("n", "v", "STRING")) + properties("SystemProperties", "SystemPropertyValue", ("n", "w", "STRING"))
    many = user(*((f"n{number}", "v", "STRING") for number in range(70)))
    long = user(("n", "v" * 17_000, "STRING"))
    for content in (twice, many, long, xmlout.element("MessageGroupId", "g" * 129)):
        with pytest.raises(QueueFaultError):
            read(content)
