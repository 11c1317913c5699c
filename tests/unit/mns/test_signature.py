"""The signature, against lines that the vendor's own library for Python (aliyun-mns-sdk 1.3.0) has signed."""

from __future__ import annotations

import pytest

from gantry.mns.exchange import AccountSettings
from gantry.mns.messagecalls import change_visibility
from gantry.mns.signature import authorization, text_to_sign

DATE = {"Date": "Fri, 27 Nov 2026 10:00:00 GMT", "X-MNS-Version": "2015-06-06"}
SECRET = "a secret/with+signs="


@pytest.mark.parametrize(
    ("method", "target", "more", "signed"),
    [
        (
            "PUT", "/queues/orders/messages?ReceiptHandle=1-ODU%2B&VisibilityTimeout=1",
            {"Content-Type": "text/xml;charset=UTF-8"}, "klygaE+mtPm1PbYkbfs+/mMWR0c=",
        ),
        ("GET", "/queues", {"x-mns-ret-number": "2", "x-mns-prefix": "or"}, "sKLDOG5gyxAF/grQv41TN8CMGnU="),
        (
            "POST", "/queues/orders/messages",
            {"Content-MD5": "ZDgxNjY5ZjFlMDQ5MGM0YWMwMWE5ODlmZDVlYmQxYjI=", "Content-Type": "text/xml"},
            "yP5QnIVwoTVMiSVdboZSOdn6UtQ=",
        ),
    ],
)  # fmt: skip
def test_a_request_is_signed_as_the_vendors_library_signs_it(
    method: str, target: str, more: dict[str, str], signed: str
) -> None:
    text = text_to_sign(method, target, {**DATE, **more})
    assert authorization("an-id", SECRET, text) == f"MNS an-id:{signed}"


def test_headers_of_others_take_no_part() -> None:
    assert text_to_sign("GET", "/queues", {**DATE, "Accept": "*/*"}) == text_to_sign("GET", "/queues", DATE)


def test_the_target_that_is_signed_has_each_sign_of_a_handle_escaped() -> None:
    target = change_visibility("orders", "a/b+c=d&e", 1).target
    assert target == "/queues/orders/messages?ReceiptHandle=a%2Fb%2Bc%3Dd%26e&VisibilityTimeout=1"


def test_a_secret_is_not_shown() -> None:
    assert SECRET not in repr(AccountSettings("http://127.0.0.1:9407", "an-id", SECRET))
