"""Signatures of HTTP queues: the text that is signed, the clock, the digest of a body."""

from __future__ import annotations

import base64
import hashlib
from email.utils import formatdate

import pytest

from gantry.queues import signature
from gantry.queues.faults import QueueFaultError
from testkit import mnscalls

NOW_S = 1_795_822_354.0
USERS = {"alice": "wonderland-secret"}
TARGET = "/queues/q/messages?numOfMessages=4"


def signed(target: str = TARGET, method: str = "GET", **headers: str) -> dict[str, str]:
    found = {"date": formatdate(NOW_S, usegmt=True), "content-type": "text/xml", "x-mns-version": "2015-06-06"}
    found |= {name.replace("_", "-"): value for name, value in headers.items()}
    own = mnscalls.signature(USERS["alice"], method, target, found)
    return {**found, "authorization": f"MNS alice:{own}"}


def code(headers: dict[str, str], target: str = TARGET, method: str = "GET", now_s: float = NOW_S) -> tuple[int, str]:
    with pytest.raises(QueueFaultError) as caught:
        signature.check(method, target, headers, USERS, now_s)
    return caught.value.status, caught.value.code


def test_the_example_of_the_java_sdk_has_its_signature() -> None:
    # Made with the hmac of OpenSSL, from the text that the facts about MNS give.
    headers = {"date": "Wed, 08 Mar 2012 12:00:00 GMT", "x-mns-version": "2015-06-06", "content-type": "text/xml"}
    text = "GET\n\ntext/xml\nWed, 08 Mar 2012 12:00:00 GMT\nx-mns-version:2015-06-06\n/queues/q"
    key = b"secret".ljust(64, b"\0")
    inner = hashlib.sha1(bytes(one ^ 0x36 for one in key) + text.encode()).digest()
    outer = hashlib.sha1(bytes(one ^ 0x5C for one in key) + inner).digest()
    assert signature.sign("secret", "GET", "/queues/q", headers) == base64.b64encode(outer)


def test_a_signed_request_is_that_of_its_user() -> None:
    assert signature.check("GET", TARGET, signed(), USERS, NOW_S) == "alice"
    more = signed(x_mns_user_request_id="7", x_mns_prefix="a", content_md5="abc")
    assert signature.check("GET", TARGET, more, USERS, NOW_S) == "alice"


def test_whatever_is_changed_the_signature_does_not_match() -> None:
    wrong = (403, "SignatureDoesNotMatch")
    assert code(signed(), target="/queues/q/messages?numOfMessages=5") == wrong
    assert code(signed(), method="DELETE") == wrong
    for name in ("content-type", "x-mns-version", "content-md5", "x-mns-new"):
        assert code({**signed(), name: "another"}) == wrong, name
    later = formatdate(NOW_S + 1, usegmt=True)
    assert code({**signed(), "date": later}) == wrong
    for given in ("", "x", "é"):
        assert code({**signed(), "authorization": f"MNS alice:{given}"}) == wrong


def test_a_request_is_good_for_fifteen_minutes_both_ways() -> None:
    for now_s in (NOW_S - 900, NOW_S + 900):
        assert signature.check("GET", TARGET, signed(), USERS, now_s) == "alice"
    for now_s in (NOW_S - 901, NOW_S + 901):
        assert code(signed(), now_s=now_s) == (408, "TimeExpired")


@pytest.mark.parametrize(
    "date", ["", "yesterday", "Fri, 32 Nov 2026 12:00:00 GMT", "Fri, 27 Nov 99999999 12:00:00 GMT"]
)
def test_a_header_that_is_no_date_is_refused(date: str) -> None:
    assert code(signed(date=date)) == (400, "InvalidDateHeader")


@pytest.mark.parametrize("given", ["", "Basic x", "MNS", "MNSalice:x"])
def test_a_request_without_a_signature_is_refused(given: str) -> None:
    assert code({**signed(), "authorization": given}) == (403, "AccessDenied")


def test_an_unknown_id_is_refused_before_anything_else() -> None:
    assert code({"authorization": "MNS bob:x"}) == (403, "AccessIDAuthError")


def test_a_digest_may_be_of_bytes_or_of_hex_digits() -> None:
    digest = hashlib.md5(b"body")
    for form in (digest.digest(), digest.hexdigest().encode(), digest.hexdigest().upper().encode()):
        signature.check_digest(base64.b64encode(form).decode(), b"body")
        with pytest.raises(QueueFaultError):
            signature.check_digest(base64.b64encode(form).decode(), b"bodY")
    for wrong in ("x", "é", digest.hexdigest()):
        with pytest.raises(QueueFaultError) as caught:
            signature.check_digest(wrong, b"body")
        assert caught.value.code == "InvalidDigest"
