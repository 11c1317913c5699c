"""What clients said to Apache's broker, and what it answered, byte for byte (recorder: tests/interop/capture.py).

The frames beside this file hold what the ones captured against our own broker cannot: requests that we refuse (36, 37,
361), administration, and Apache's replies.  "Equal" is judged by the header's own JSON, read here by the json module,
not by the decoder twice.
"""

import json
from pathlib import Path

import pytest

from gantry.leaves import frames
from gantry.leaves.frames import Command
from gantry.wire import headers
from gantry.wire.codes import UNSUPPORTED
from testkit.feeding import LONG_NAMES

HERE = Path(__file__).parent
INDEX: list[dict[str, str | int]] = json.loads((HERE / "index.json").read_text())
HOT = {10: frames.Send, 310: frames.Send, 320: frames.Send, 11: frames.Pull, 361: frames.Pull, 37: frames.End}
PULL_FIELDS = {
    "consumerGroup": "group",
    "topic": "topic",
    "queueId": "queue_id",
    "queueOffset": "queue_offset",
    "maxMsgNums": "count_max",
    "sysFlag": "sys_flag",
    "commitOffset": "commit_offset",
    "suspendTimeoutMillis": "suspend_ms",
    "subscription": "subscription",
}
SEND_FIELDS = {
    "producerGroup": "group",
    "topic": "topic",
    "defaultTopic": "default_topic",
    "defaultTopicQueueNums": "default_queues",
    "queueId": "queue_id",
    "sysFlag": "sys_flag",
    "bornTimestamp": "born_ms",
    "flag": "flag",
}
END_FIELDS = {
    "producerGroup": "group",
    "tranStateTableOffset": "queue_offset",
    "commitLogOffset": "log_offset",
    "commitOrRollback": "kind",
    "msgId": "message_id",
    "transactionId": "transaction_id",
}
FIELDS = {frames.Send: SEND_FIELDS, frames.Pull: PULL_FIELDS, frames.End: END_FIELDS}
captured = pytest.mark.parametrize("entry", INDEX, ids=lambda entry: str(entry["file"]).removesuffix(".bin"))


def header_of(data: bytes) -> dict[str, object]:
    header = json.loads(data[8 : 8 + int.from_bytes(data[5:8], "big")])
    assert isinstance(header, dict)
    return header


def ext_of(data: bytes) -> dict[str, str]:
    ext = header_of(data).get("extFields") or {}
    assert isinstance(ext, dict)
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in ext.items()}


def body_of(data: bytes) -> bytes:
    return data[8 + int.from_bytes(data[5:8], "big") :]


def decoded(data: bytes) -> Command | frames.Send | frames.Pull | frames.End:
    used, (request,) = frames.decode(data, 0, len(data))
    assert used == len(data)
    return request


def test_the_index_names_every_file_and_no_other() -> None:
    assert {entry["file"] for entry in INDEX} == {path.name for path in HERE.glob("*.bin")}
    assert {entry["client"] for entry in INDEX} == {
        "ali-ons-3.12",
        "apache-5.x",
        "cpp-2.1.8",
        "cpp-2.1.11",
        "java-4.9.7",
        "java-5.x",
    }


@captured
def test_a_frame_is_what_its_header_says(entry: dict[str, str | int]) -> None:
    data = (HERE / str(entry["file"])).read_bytes()
    frame = decoded(data)
    header = header_of(data)
    assert (frame.opaque, frame.version) == (header["opaque"], header["version"])
    assert frames.LANGUAGES[frame.language] == header["language"]
    ext = ext_of(data)
    if isinstance(frame, Command):
        assert (frame.code, frame.flag, frame.remark or "") == (
            header["code"],
            header["flag"],
            header.get("remark") or "",
        )
        assert frame.is_response == (entry["kind"] == "reply")
        assert frame.ext == ext
        assert frame.body == body_of(data)
        assert entry["kind"] == "reply" or entry["code"] not in HOT
    else:
        assert type(frame) is HOT[int(entry["code"])]
        names = FIELDS[type(frame)]
        full = {LONG_NAMES.get(name, name): value for name, value in ext.items()}
        for wire, ours in names.items():
            if wire in full:
                assert str(getattr(frame, ours)) == full[wire], wire
        if isinstance(frame, frames.Send):
            assert frame.properties == full["properties"].encode()
            assert frame.body == body_of(data)


@captured
def test_a_command_encoded_again_says_the_same(entry: dict[str, str | int]) -> None:
    data = (HERE / str(entry["file"])).read_bytes()
    frame = decoded(data)
    if not isinstance(frame, Command):
        return
    again = frames.encode(frame)
    before, after = header_of(data), header_of(again)
    for name in ("code", "flag", "opaque", "version", "language"):
        assert after[name] == before[name]
    assert (after.get("remark") or "") == (before.get("remark") or "")
    assert ext_of(again) == ext_of(data)
    assert body_of(again) == body_of(data)


@captured
def test_a_requests_header_passes_our_table(entry: dict[str, str | int]) -> None:
    frame = decoded((HERE / str(entry["file"])).read_bytes())
    if isinstance(frame, Command) and entry["kind"] == "request" and frame.code not in UNSUPPORTED:
        headers.parse(frame.code, frame.ext)
