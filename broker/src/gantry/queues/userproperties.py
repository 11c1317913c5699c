"""Properties of messages: the elements of documents as properties of the broker's messages, and back.  Pure.

    MessageGroupId                    __SHARDINGKEY, as the message group of gRPC clients
    UserProperties/PropertyValue      a property of its name with its value, and NAME:T in `GQ_USER`
    SystemProperties/...              the same, in `GQ_SYSTEM`; T is the first letter of the type, Y for BINARY

So consumers of other protocols see them under their names.  What producers of other protocols set is not shown over
HTTP: one of the SDKs cannot read nested elements, and would fail at such a message.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping

from gantry.model.message import SHARDING_KEY, property_fault
from gantry.queues import xmlout
from gantry.queues.faults import invalid
from gantry.queues.xmlin import XmlElement

COUNT_MAX = 64
BYTES_MAX = 16 << 10  # of names and values together
GROUP_CHARACTERS_MAX = 128
_USER, _SYSTEM = "GQ_USER", "GQ_SYSTEM"
_TYPES = {"STRING": "S", "NUMBER": "N", "BOOLEAN": "B", "BINARY": "Y"}
_LETTERS = {letter: name for name, letter in _TYPES.items()}
_KINDS = (("UserProperties", "PropertyValue", _USER), ("SystemProperties", "SystemPropertyValue", _SYSTEM))
_NAME = re.compile(r"[0-9A-Za-z_.-]{1,128}\Z")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?\Z", re.ASCII)


def read(message: XmlElement) -> dict[str, str]:
    """Return the properties of a `Message`; QueueFaultError 400 for what cannot be kept."""
    found: dict[str, str] = {}
    for element in message.children:
        if element.name == "MessageGroupId" and element.text.strip():
            found[SHARDING_KEY] = _group(element.text.strip())
        for kind, item, listed in _KINDS:
            if element.name == kind:
                found |= _values(element, item, listed, found)
    if len(found) > COUNT_MAX:
        raise invalid(f"the message has {len(found)} properties, {COUNT_MAX} are allowed")
    size = sum(len(name) + len(value.encode()) for name, value in found.items())
    if size > BYTES_MAX:
        raise invalid(f"the properties have {size} bytes, {BYTES_MAX} are allowed")
    return found


def written(properties: Mapping[str, str]) -> str:
    """Return the properties as elements of a `Message`; nothing where it has none."""
    text = ""
    if SHARDING_KEY in properties:
        text += xmlout.element("MessageGroupId", properties[SHARDING_KEY])
    for kind, item, listed in _KINDS:
        values = ""
        for entry in filter(None, properties.get(listed, "").split(",")):
            name, _, letter = entry.rpartition(":")
            if name in properties and letter in _LETTERS:
                one = {"Name": name, "Value": properties[name], "Type": _LETTERS[letter]}
                values += f"<{item}>{''.join(xmlout.element(key, value) for key, value in one.items())}</{item}>"
        if values:
            text += f"<{kind}>{values}</{kind}>"
    return text


def kept(properties: Mapping[str, str]) -> dict[str, str]:
    """Return of a message's properties those that `read` has made: what a copy of the message needs."""
    names = [SHARDING_KEY, _USER, _SYSTEM]
    for listed in (_USER, _SYSTEM):
        names += [entry.rpartition(":")[0] for entry in properties.get(listed, "").split(",")]
    return {name: properties[name] for name in names if name in properties}


def _values(element: XmlElement, item: str, listed: str, taken: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    entries: list[str] = []
    for child in element.children:
        if child.name != item:
            continue
        texts = child.child_texts()
        name, value, kind = texts.get("Name", "").strip(), texts.get("Value", ""), texts.get("Type", "").strip()
        fault = _fault(name, value, kind)
        if not fault and (name in found or name in taken):
            fault = "it is there twice"
        if fault:
            raise invalid(f"property {name[:64]!r}: {fault}")
        found[name] = value
        entries.append(f"{name}:{_TYPES[kind]}")
    if entries:
        found[listed] = ",".join(entries)
    return found


def _fault(name: str, value: str, kind: str) -> str | None:
    if not _NAME.match(name):
        return "expected a name of up to 128 letters, digits, _, . and -"
    if name.startswith("GQ_"):
        return "names that begin with GQ_ are used by the server"
    if kind not in _TYPES:
        return f"its type is {kind[:20]!r}, expected {', '.join(_TYPES)}"
    if not value:
        return "it has no value"
    if kind == "NUMBER" and not _NUMBER.match(value):
        return "its value is no number"
    if kind == "BOOLEAN" and value not in ("true", "false"):
        return "its value is neither true nor false"
    if kind == "BINARY":
        try:
            base64.b64decode(value, validate=True)
        except binascii.Error:
            return "its value is no base64"
    return property_fault(name, value)


def _group(text: str) -> str:
    if len(text) > GROUP_CHARACTERS_MAX:
        raise invalid(f"MessageGroupId has {len(text)} characters, {GROUP_CHARACTERS_MAX} are allowed")
    return text
