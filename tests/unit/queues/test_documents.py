"""Documents of HTTP queues: what is read, what is refused, what is written."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantry.queues import documents, xmlin, xmlout
from gantry.queues.faults import QueueFaultError
from gantry.queues.xmlin import DEPTH_MAX, ELEMENTS_MAX

_PRINTED = st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="\ufffe\uffff")
XML_TEXT = st.text(_PRINTED | st.sampled_from("\t\n\r"))


def test_prefixes_namespaces_and_unknown_elements_are_ignored() -> None:
    root = xmlin.read(
        b'<m:Message xmlns:m="http://mns.aliyuncs.com/doc/v1/"><m:New a="b"><m:Deep/></m:New>'
        b"<m:MessageBody>a<!-- no text -->b</m:MessageBody><m:Priority> 3 </m:Priority></m:Message>"
    )
    (post,), is_many = documents.posts(root)
    assert (post.body, post.priority, post.delay_s, is_many) == (b"ab", 3, None, False)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
def test_a_document_may_name_its_encoding(encoding: str) -> None:
    text = f"<?xml version='1.0' encoding='{encoding}'?><Message><MessageBody>é</MessageBody></Message>"
    (post,), _ = documents.posts(xmlin.read(text.encode(encoding)))
    assert post.body == "é".encode()


@pytest.mark.parametrize(
    "body",
    [
        b"<a>" * (DEPTH_MAX + 1) + b"</a>" * (DEPTH_MAX + 1),
        b"<a>" + b"<b/>" * ELEMENTS_MAX + b"</a>",
        b"<!DOCTYPE a><a/>",
        b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>',
        b"<a>&nbsp;</a>",
        b"<a>\xff</a>",
        b"<a/><b/>",
        b"<a/>" + b" " * 10 + b"x",
        b"<?xml version='1.0' encoding='utf-7'?><a/>",
        b"<?xml version='1.0' encoding='undefined'?><a/>",
    ],
)
def test_what_no_client_sends_is_refused(body: bytes) -> None:
    with pytest.raises(QueueFaultError) as caught:
        xmlin.read(body)
    assert (caught.value.status, caught.value.code) == (400, "MalformedXML")


def test_the_deepest_and_widest_documents_that_are_allowed_are_read() -> None:
    xmlin.read(b"<a>" * DEPTH_MAX + b"</a>" * DEPTH_MAX)
    xmlin.read(b"<a>" + b"<b/>" * (ELEMENTS_MAX - 1) + b"</a>")


@given(st.binary(max_size=200) | st.text("<>/!?[]&;%#xa'\" =-ENTITYDOCPMessageBdy", max_size=200).map(str.encode))
def test_any_bytes_are_a_document_or_refused(body: bytes) -> None:
    try:
        root = xmlin.read(body)
    except QueueFaultError as fault:
        assert fault.code == "MalformedXML"
        return
    for read in (documents.posts, documents.receipt_handles):
        try:
            read(root)
        except QueueFaultError as fault:
            assert fault.status == 400


@given(XML_TEXT)
def test_any_text_of_xml_comes_back_as_it_was(text: str) -> None:
    assert xmlout.is_text(text)
    whole = xmlout.document("Message", xmlout.element("MessageBody", text))
    assert (ElementTree.fromstring(whole)[0].text or "") == text
    assert xmlin.read(whole).child_texts() == {"MessageBody": text}


@given(st.binary(max_size=50))
def test_any_body_of_another_producer_can_be_given(body: bytes) -> None:
    text = documents.text_of(body)
    assert xmlin.read(xmlout.document("M", xmlout.element("B", text))).child_texts()["B"] == text


@given(st.text(st.characters()))
def test_what_xml_cannot_hold_never_makes_an_answer_unreadable(text: str) -> None:
    """As ids and properties of other producers, and as the host that a client names."""
    answers = [xmlout.document("Message", xmlout.element("MessageId", text)), xmlout.error("C", text, "1", text)]
    for answer in answers:
        for element in ElementTree.fromstring(answer):
            held = "".join(one if xmlout.is_text(one) else "?" for one in text)
            assert element.text in (held or None, "C", "1"), "nothing else is lost"


def test_an_error_has_what_xml_can_hold_of_its_text() -> None:
    root = ElementTree.fromstring(xmlout.error("Code", "a\x00<\ud800>", "R", "H"))
    assert [one.text for one in root] == ["Code", "a?<?>", "R", "H"]


@pytest.mark.parametrize("count", [0, 17])
def test_batches_have_one_to_sixteen(count: int) -> None:
    many = b"<Messages>" + b"<Message/>" * count + b"</Messages>"
    handles = b"<ReceiptHandles>" + b"<ReceiptHandle/>" * count + b"</ReceiptHandles>"
    for read, body in ((documents.posts, many), (documents.receipt_handles, handles)):
        with pytest.raises(QueueFaultError, match="expected 1 to 16"):
            read(xmlin.read(body))
