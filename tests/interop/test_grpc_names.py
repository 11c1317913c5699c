"""Our messages of the gRPC protocol have the names and numbers of those that RocketMQ's own client carries.

The client for Node.js brings its .proto files along; what they declare is compared with the descriptors of ours.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from gantry.proxy import messaging_pb2 as pb
from interop import prepare

_FIELD = re.compile(r"(optional |repeated )?([\w.]+|map<string, string>) (\w+) = (\d+);")
_VALUE = re.compile(r"(\w+) = (\d+);")
_CALL = re.compile(r"rpc (\w+)\((stream )?(\w+)\) returns \((stream )?(\w+)\)")


def declared(texts: list[str]) -> tuple[dict[str, set[Any]], dict[str, set[Any]], set[Any]]:
    """Fields of messages, values of enums and calls, of .proto files; a part within a message counts by itself."""
    messages: dict[str, set[Any]] = {}
    enums: dict[str, set[Any]] = {}
    calls: set[Any] = set()
    for text in texts:
        text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
        open_parts: list[tuple[str, str]] = []
        for token in re.findall(r"(?:message|enum|service|oneof) \w+ \{|\}|\{|rpc [^;{]*|[^{};]*;", text):
            words = token.split()
            if words[0] in ("message", "enum", "service", "oneof") and token.endswith("{"):
                open_parts.append((words[0], words[1]))
                if words[0] in ("message", "enum"):
                    (messages if words[0] == "message" else enums)[words[1]] = set()
            elif token == "{":
                open_parts.append(("", ""))
            elif token == "}":
                open_parts.pop()
            elif found := _CALL.search(re.sub(r"\s+", " ", token)):
                calls.add((found[1], bool(found[2]), found[3], bool(found[4]), found[5]))
            else:
                note(re.sub(r"\s+", " ", token.strip()), open_parts, messages, enums)
    return messages, enums, calls


def note(
    line: str, parts: list[tuple[str, str]], messages: dict[str, set[Any]], enums: dict[str, set[Any]]
) -> None:
    kind, name = next((one for one in reversed(parts) if one[0] in ("message", "enum")), ("", ""))
    if kind == "enum" and (found := _VALUE.fullmatch(line)):
        enums[name].add((found[1], int(found[2])))
    elif kind == "message" and (found := _FIELD.fullmatch(line)):
        form = "repeated" if found[1] == "repeated " else "map" if found[2].startswith("map") else "one"
        messages[name].add((found[3], int(found[4]), form, found[2].rpartition(".")[2]))


def ours() -> tuple[dict[str, set[Any]], dict[str, set[Any]], set[Any]]:
    """The same of the descriptors that the proxy uses."""
    return declared([(Path(pb.__file__).with_name("messaging.proto")).read_text()])


def test_names_and_numbers_are_those_of_rocketmqs_own_client() -> None:
    folder = prepare.sdk_node() / "node_modules" / "rocketmq-client-nodejs" / "proto" / "apache" / "rocketmq" / "v2"
    messages, enums, calls = declared([(folder / f"{name}.proto").read_text() for name in ("definition", "service")])
    assert len(messages) > 60 and len(enums) > 10 and len(calls) == 17, "the files were read"
    assert ours() == (messages, enums, calls)


def test_the_descriptors_are_made_from_that_file() -> None:
    messages, enums, calls = ours()
    assert set(pb.DESCRIPTOR.message_types_by_name) == set(messages)
    for name, fields in messages.items():
        found = pb.DESCRIPTOR.message_types_by_name[name].fields
        assert {(field.name, field.number) for field in found} == {field[:2] for field in fields}, name
    for name, values in enums.items():
        if name != "Policy":  # within OffsetOption
            found = pb.DESCRIPTOR.enum_types_by_name[name].values
            assert {(value.name, value.number) for value in found} == values, name
    assert {method.name for method in pb.DESCRIPTOR.services_by_name["MessagingService"].methods} == {
        call[0] for call in calls
    }
