"""What other people's clients really sent (see `capture.py`), decoded, understood and encoded again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from gantry.leaves import frames, properties, records
from gantry.leaves.frames import Command
from gantry.wire import headers, heartbeat
from gantry.wire.codes import RequestCode
from testkit.feeding import LONG_NAMES, fed_by_byte, fed_whole, values

FRAMES = Path(__file__).parent / "frames"
CAPTURED = [
    pytest.param(bytes.fromhex(line), id=f"{path.stem}:{number}")
    for path in sorted(FRAMES.glob("*.txt"))
    for number, line in enumerate(path.read_text(encoding="ascii").split("\n"))
    if line and not line.startswith("#")
]
HOT = {10: frames.Send, 310: frames.Send, 320: frames.Send, 11: frames.Pull}


def decoded(data: bytes) -> Command | frames.Send | frames.Pull:
    used, (request,) = frames.decode(data, 0, len(data))
    assert used == len(data)
    return request


def _of(kind: type) -> list[ParameterSet]:
    """The captured frames of one kind: a test has something to say about each that it is given."""
    return [one for one in CAPTURED if isinstance(decoded(one.values[0]), kind)]  # type: ignore[arg-type]


SENDS, COMMANDS = _of(frames.Send), _of(Command)


def test_every_client_is_here_with_both_serializations() -> None:
    names = {path.stem for path in FRAMES.glob("*.txt")}
    assert names >= {"ali-ons-3.12", "cpp-2.1.8", "cpp-2.1.11", "java-4.9.7", "java-5.x", "java-5.x-binary"}
    requests = [decoded(parameter.values[0]) for parameter in CAPTURED]  # type: ignore[arg-type]
    assert {request.code for request in requests} >= {10, 310, 320, 11, 34, 35, 38, 14, 15, 105}
    assert {request.serialization for request in requests} == {0, 1}


@pytest.mark.parametrize("data", CAPTURED)
def test_a_captured_frame_is_understood(data: bytes) -> None:
    request = decoded(data)
    assert type(request) is HOT.get(request.code, Command)
    assert fed_by_byte(data) == fed_whole(data)


@pytest.mark.parametrize("data", COMMANDS)
def test_the_header_and_the_heartbeat_of_a_captured_command_are_understood(data: bytes) -> None:
    request = decoded(data)
    assert isinstance(request, Command)
    headers.parse(request.code, request.ext)
    if request.code == RequestCode.HEART_BEAT:
        beat = heartbeat.read(request.body)
        assert [consumer.group for consumer in beat.consumers] in ([], ["golden-consumer"])
        assert {topic.topic for consumer in beat.consumers for topic in consumer.subscriptions} <= {
            "Golden",
            "%RETRY%golden-consumer",
        }


@pytest.mark.parametrize("data", SENDS)
def test_a_captured_send_says_what_its_header_says(data: bytes) -> None:
    send = decoded(data)
    assert isinstance(send, frames.Send)
    assert (send.group, send.topic, send.default_topic) == ("golden-producer", "Golden", "TBW102")
    if send.serialization == frames.SERIALIZATION_JSON:
        header = json.loads(data[8 : 8 + int.from_bytes(data[5:8], "big")])
        ext = {LONG_NAMES.get(name, name): str(value) for name, value in header["extFields"].items()}
        assert (send.queue_id, send.born_ms) == (int(ext["queueId"]), int(ext["bornTimestamp"]))
        assert send.properties == ext["properties"].encode()
        assert send.opaque == header["opaque"]
    found = records.split_batch(send.body) if send.batch else [(0, send.body, send.properties)]
    assert send.batch == (send.code == RequestCode.SEND_BATCH_MESSAGE)
    for _, body, pairs in found:
        assert body.split(b"-")[0] in (b"m", b"oneway", b"async", b"batch", b"selector", b"orderly", b"sharding")
        assert properties.scan(pairs)[3] == 2598919
        assert properties.parse(pairs)["KEYS"] == body.decode().replace("-", "-key-")


@pytest.mark.parametrize("data", COMMANDS)
def test_a_captured_command_survives_both_serializations(data: bytes) -> None:
    command = decoded(data)
    assert isinstance(command, Command)
    # An empty text cannot be told from a missing one in a binary header.
    command.ext = {name: value for name, value in command.ext.items() if value}
    command.remark = command.remark or None
    for serialization in (frames.SERIALIZATION_JSON, frames.SERIALIZATION_ROCKETMQ):
        command.serialization = serialization
        assert values(decoded(frames.encode(command))) == values(command)
