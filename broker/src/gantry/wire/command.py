"""Making requests, replies and refusals as `Command` values.

A reply carries its request's `opaque` and our own language and version, and is always JSON: each frame names its
serialization, Java and Go decode by that, and C++ knows nothing else.  `extFields` is always there.
"""

from __future__ import annotations

from gantry.errors import LocalProtocolError, Refusal
from gantry.leaves import frames
from gantry.leaves.frames import FLAG_ONEWAY, FLAG_RESPONSE, Command
from gantry.wire.codes import ResponseCode

Request = Command | frames.Send | frames.Pull | frames.End
"""What a peer may ask; all of them have code, opaque, version, language and is_oneway."""


def request(code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Command:
    """Make a request that expects an answer; the connection that sends it sets the opaque number."""
    return Command(int(code), ext=ext, body=body)


def oneway(code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Command:
    """Make a one-way request: it gets no answer."""
    return Command(int(code), ext=ext, body=body, flag=FLAG_ONEWAY)


def reply(
    to: Request,
    code: int = 0,
    remark: str | None = None,
    ext: dict[str, str] | None = None,
    body: bytes = b"",
) -> Command:
    """The answer to a request; code 0 is SUCCESS."""
    return Command(int(code), opaque=to.opaque, flag=FLAG_RESPONSE, remark=remark, ext=ext, body=body)


def refusal(to: Request, why: Refusal) -> Command:
    """The answer "no" to a request."""
    return reply(to, why.code, why.remark)


def encode_answer(to: Request, answer: Command) -> bytes:
    """Encode an answer.  One that is longer than a frame becomes a refusal: the client keeps its connection."""
    try:
        return frames.encode(answer)
    except LocalProtocolError as error:
        return frames.encode(reply(to, ResponseCode.SYSTEM_ERROR, f"the answer is too long: {error}"))
