"""Requests, replies and refusals as values."""

from __future__ import annotations

from gantry.errors import Refusal
from gantry.leaves import frames
from gantry.leaves.frames import Command
from gantry.wire import command
from gantry.wire.codes import RequestCode, ResponseCode


def test_a_reply_pairs_with_its_request_and_is_json() -> None:
    hot = (frames.Send(310, opaque=9, serialization=1), frames.Pull(opaque=9))
    for request in (Command(5, opaque=9, serialization=1), *hot):
        reply = command.reply(request, ext={"a": "1"}, body=b"x")
        assert (reply.opaque, reply.is_response, reply.serialization, reply.code) == (9, True, 0, 0)
        assert (reply.ext, reply.body, reply.remark, reply.version) == ({"a": "1"}, b"x", None, 479)


def test_a_refusal_carries_code_and_remark() -> None:
    reply = command.refusal(Command(5), Refusal(ResponseCode.NO_PERMISSION, "no"))
    assert (reply.code, type(reply.code), reply.remark) == (16, int, "no")


def test_a_request_wants_an_answer_and_a_one_way_does_not() -> None:
    asked = command.request(RequestCode.HEART_BEAT, body=b"{}")
    assert (asked.code, asked.is_oneway, asked.is_response, asked.body) == (34, False, False, b"{}")
    assert command.oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}).is_oneway
