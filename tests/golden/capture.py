"""Captures what other people's clients really send: `python tests/golden/capture.py`, by hand, when a client is added.

`gantry standalone` runs with a tap on `frames.decode`, each client sends and consumes as in the interop tests, and of
every kind of frame (code, flag, names of the fields) the first one is kept: in `frames/<client>.txt`, one line of
hexadecimal under one line that says what it is.  Java's clients run twice, the second time with binary headers.
`test_captured_frames.py` holds the decoder against them.

The clients are prepared by `tests/interop/prepare.py`.  Run it where only the loopback exists (`unshare -n`, `ip link
set lo up`), so that no address of the machine gets into the files.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
FRAMES = HERE / "frames"
FRAME_BYTES_MAX = 4096
RECEIVE_S = 40.0
BINARY = "-binary"
# How the interop tests themselves write a header: with blanks, as no client does.
BY_HAND = b'{"code": '


def serve(tap: str, arguments: list[str]) -> int:
    """`gantry` with a copy of every decoded byte in the file `tap`, a line of hexadecimal per decode."""
    from gantry.cli.main import main
    from gantry.leaves import frames

    decode = frames.decode

    def tapped(buffer, start, end):  # type: ignore[no-untyped-def]
        used, requests = decode(buffer, start, end)
        with Path(tap).open("a", encoding="ascii") as file:
            file.write(bytes(memoryview(buffer)[start:used]).hex() + "\n")
        return used, requests

    frames.decode = tapped
    return main(arguments)


def play(name: str, home: Path) -> None:
    """One client sends in all its ways and consumes."""
    from interop import servers
    from interop.clients import CLIENTS, Running

    if name.endswith(BINARY):
        os.environ["JAVA_TOOL_OPTIONS"] = "-Drocketmq.serialize.type=ROCKETMQ"
    client = CLIENTS[name.removesuffix(BINARY)]
    server = servers.make("gantry", home, home / "data")
    server.start()
    try:
        topic = "Golden"
        servers.create_topic(server, topic)
        running = Running(home / "clients", server.name_server)
        driver = running.driver(client)
        driver.call("subscribe", id=topic, group="golden-consumer", topic=topic, expression="TagA")
        driver.call("send", group="golden-producer", topic=topic, count=2, prefix="m", tag="TagA")
        for kind in client.kinds:
            driver.call("send", group="golden-producer", kind=kind, topic=topic, count=3, prefix=kind, tag="TagA")
        driver.receive(topic, 2 + 3 * len(client.kinds), RECEIVE_S)
        driver.settle(6.0)  # offsets are committed every five seconds
        if not client.own_process_per_test:
            driver.call("close", id=topic)
        running.end()
    finally:
        server.close()


def kept(tap: Path) -> list[str]:
    """The first frame of each kind, with what it is above it."""
    from gantry.leaves import frames
    from gantry.wire.codes import RequestCode

    lines: list[str] = []
    seen: set[object] = set()
    for chunk in tap.read_text(encoding="ascii").split():
        data = bytes.fromhex(chunk)
        at = 0
        while at < len(data):
            length = frames.frame_length(data, at, len(data))
            assert length is not None
            frame = data[at : at + length]
            at += length
            command = _as_command(frame)
            if command.language == frames.LANGUAGE_PYTHON or frame[8:].startswith(BY_HAND):
                continue  # our own broker at its name server, and the test
            kind = (command.code, command.flag, tuple(sorted(command.ext)), bool(command.body))
            if kind not in seen and length <= FRAME_BYTES_MAX:
                seen.add(kind)
                name = "answer" if command.is_response else f"{RequestCode(command.code).name} ({command.code})"
                lines.append(f"# {name}, {len(command.ext)} fields, body of {len(command.body)} bytes\n{frame.hex()}")
    return sorted(lines)


def _as_command(frame: bytes):  # type: ignore[no-untyped-def]
    """The frame as a command, whatever its code: a response is never a send."""
    from gantry.leaves import frames, headers

    body_at = 8 + int.from_bytes(frame[5:8], "big")
    if frame[4] == frames.SERIALIZATION_ROCKETMQ:
        parts = headers.read_binary(memoryview(frame), 8, body_at)
    else:
        parts = headers.read_json(frame[8:body_at].decode())
    code, language, version, opaque, flag, remark, ext = parts
    body = frame[body_at:]
    return frames.Command(
        code, language=language, version=version, opaque=opaque, flag=flag, remark=remark, ext=ext, body=body
    )


def capture(names: list[str]) -> None:
    """Every client's file again."""
    from interop import servers
    from interop.clients import CLIENTS

    FRAMES.mkdir(exist_ok=True)
    for name in names or [*CLIENTS, f"java-4.9.7{BINARY}", f"java-5.x{BINARY}"]:
        with tempfile.TemporaryDirectory() as folder:
            tap = Path(folder) / "tap"
            servers.gantry_command = lambda tap=tap: [sys.executable, __file__, "serve", str(tap)]  # type: ignore[misc]
            play(name, Path(folder) / "home")
            lines = kept(tap)
        os.environ.pop("JAVA_TOOL_OPTIONS", None)
        (FRAMES / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="ascii")
        print(f"{name}: {len(lines)} kinds of frames")


if __name__ == "__main__":
    sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent / "broker" / "src")]
    os.environ.setdefault("HOME", tempfile.gettempdir())
    if sys.argv[1:2] == ["serve"]:
        raise SystemExit(serve(sys.argv[2], sys.argv[3:]))
    capture(sys.argv[1:])
