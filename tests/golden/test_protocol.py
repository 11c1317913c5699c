"""The examples of broker/docs/protocol.md, worked out by hand, against the code."""

from __future__ import annotations

import re

from gantry.leaves import frames
from gantry.leaves.frames import Command
from gantry.wire import bodies
from testkit.feeding import values
from testkit.sources import ROOT

DOCUMENT = (ROOT / "broker/docs/protocol.md").read_text(encoding="utf-8")
STORE_HOST = bytes([10, 0, 0, 1, 0, 0, 0x2A, 0x9F])


def positioned(text: str) -> bytes:
    data = b""
    for line in text.splitlines():
        match = re.match(r" *([0-9]+)  ((?:[0-9a-f]{2}(?: |$))+)", line)
        assert match, line
        assert int(match[1]) == len(data), line
        data += bytes.fromhex(match[2])
    return data


def json_examples() -> list[bytes]:
    found = []
    for header, prefix in re.findall(r"```frame json\n(.*?)\n(.*?)```", DOCUMENT, re.DOTALL):
        found.append(positioned(prefix) + header.encode())
    return found


def binary_example() -> bytes:
    (text,) = re.findall(r"```frame binary\n(.*?)```", DOCUMENT, re.DOTALL)
    return positioned(text)


def test_one_request_in_two_serializations_is_the_same_command() -> None:
    for data, serialization in ((json_examples()[0], 0), (binary_example(), 1)):
        used, (command,) = frames.decode(data, 0, len(data))
        assert used == len(data) == frames.frame_length(data, 0, len(data))
        expected = Command(105, language=0, version=401, opaque=7, ext={"topic": "orders"}, serialization=serialization)
        assert values(command) == values(expected)


def test_both_serializations_are_written_as_the_examples() -> None:
    command = Command(105, language=0, version=401, opaque=7, ext={"topic": "orders"})
    assert frames.encode(command) == json_examples()[0]
    command.serialization = frames.SERIALIZATION_ROCKETMQ
    assert frames.encode(command) == binary_example()


def test_the_answer_to_a_send_is_the_example() -> None:
    send = frames.Send(310, opaque=8, rpc_flag=0, queue_id=3, unique_key=b"C0A800070A1B2C3D4E5F00000001002A")
    send.queue_offset, send.log_offset = 41, 1_073_742_000
    assert bytes(frames.encode_send_replies([send], STORE_HOST, "DefaultRegion")) == json_examples()[1]


def test_the_body_dialect_reads_as_the_examples_say() -> None:
    section = DOCUMENT.split("## JSON bodies")[1].split("## Heartbeats")[0]
    examples = re.findall(r"^    (\{\S*\})  +(\{.*\})$", section, re.MULTILINE)
    assert len(examples) == 2
    for dialect, standard in examples:
        assert bodies.loads(dialect.encode()) == bodies.loads(standard.encode())
