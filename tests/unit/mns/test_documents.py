"""XML of requests and answers: escaping, bounds, and what is refused."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantry.errors import RemoteProtocolError
from gantry.mns.documents import DEPTH_MAX, ELEMENTS_MAX, NAMESPACE, document, element, parse

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]) | st.sampled_from("\t\n\r<>&'\"]"))


@given(TEXTS)
def test_a_text_comes_through_another_parser_and_through_ours(text: str) -> None:
    text = text.replace("\ufffe", "").replace("\uffff", "")
    written = document("Message", [element("MessageBody", text)])
    other = ElementTree.fromstring(written)
    assert other.tag == f"{{{NAMESPACE}}}Message" and (other[0].text or "") == text
    read = parse(written)
    assert (read.name, read.get("MessageBody")) == ("Message", text)


@pytest.mark.parametrize("text", ["\0", "a\x0b", "\ufffe", "\ud800"])
def test_a_character_that_xml_cannot_carry_is_refused_with_what_to_do(text: str) -> None:
    with pytest.raises(ValueError, match=r"MessageBody has the character U\+.* send bytes"):
        element("MessageBody", text)


def test_an_answer_is_read_with_and_without_a_namespace() -> None:
    for namespace in (f' xmlns="{NAMESPACE}"', f' xmlns="{NAMESPACE}/"', ""):
        found = parse(f"<Messages{namespace}><Message><Priority>8</Priority></Message></Messages>".encode())
        assert [each.get("Priority") for each in found.all("Message")] == ["8"]
    assert found.get("Message") == "" and found.get("Missing") is None


BOMB = b'<!DOCTYPE a [<!ENTITY b "bbbb"><!ENTITY c "&b;&b;">]><Error><Code>&c;</Code></Error>'


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (BOMB, "document type"),
        (b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', "document type"),
        (b"<a>" * (DEPTH_MAX + 1) + b"</a>" * (DEPTH_MAX + 1), f"more than {DEPTH_MAX} levels"),
        (b"<a>" + b"<b/>" * ELEMENTS_MAX + b"</a>", f"{ELEMENTS_MAX} elements"),
        (b"", "no XML"),
        (b"<a>", "no XML"),
        (b"<html><br></html>", "no XML"),
        (b"<a>&undefined;</a>", "no XML"),
        (b"\xff\xfe", "no XML"),
    ],
)
def test_what_is_no_answer_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(RemoteProtocolError, match=reason):
        parse(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for each in (data, b"<Message><MessageId>" + data):
        try:
            parse(each)
        except RemoteProtocolError:
            continue
