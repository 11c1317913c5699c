"""Records what other people's clients really send: `PYTHONPATH=tests python -m interop.capture`.

Two proxies stand between the clients and Apache's 5.x servers; the route that the name server gives is rewritten to
lead to the broker's proxy (the ports have five digits, so the frame keeps its length).  Of each sender the first frames
of each request code are kept byte for byte, requests and replies, in tests/golden/captured with an index.json:

    {"client": "java-5.x", "version": "5.5.0", "code": 310, "kind": "request", "file": "java-5.x-310-request-0.bin"}

A reply carries the code of the request that it answers.  Frames are cut at their length word here and nothing else is
understood, so that the recorder cannot share a mistake with the decoder that is tested on its files.
"""

import asyncio
import contextlib
import json
import re
import struct
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from interop import prepare, servers
from interop.clients import CLIENTS
from interop.processes import Driver, DriverError

CAPTURED = prepare.CHECKOUT / "tests" / "golden" / "captured"
VERSIONS = {
    "ali-ons-3.12": "3.12.0",
    "cpp-2.1.8": "2.1.8 (PyPI rocketmq 0.4.4)",
    "cpp-2.1.11": "2.1.11 (PyPI rocketmq-python-cvs 2.1.0.3)",
    "java-4.9.7": "4.9.7",
    "java-5.x": "5.5.0",
    "apache-5.x": "5.5.0",
}
REQUESTS_MAX = 2  # of one client and code
REPLIES_MAX = 1
FRAME_KEPT_BYTES_MAX = 16 * 1024  # the index of all topics and the like prove nothing more when larger
CODE = re.compile(rb'"code"\s*:\s*(\d+)')
OPAQUE = re.compile(rb'"opaque"\s*:\s*(-?\d+)')
FLAG = re.compile(rb'"flag"\s*:\s*(\d+)')


class Recorder:
    """The frames kept so far, by file name."""

    def __init__(self) -> None:
        self.client = ""
        self.frames: dict[str, bytes] = {}
        self.index: list[dict[str, str | int]] = []

    def keep(self, sender: str, code: int, kind: str, frame: bytes) -> None:
        limit = REQUESTS_MAX if kind == "request" else REPLIES_MAX
        known = sum(
            1 for entry in self.index if (entry["client"], entry["code"], entry["kind"]) == (sender, code, kind)
        )
        if known >= limit or len(frame) > FRAME_KEPT_BYTES_MAX or tempfile.gettempdir().encode() in frame:
            return  # the last: a runtime table names the folder of this run
        file = f"{sender}-{code}-{kind}-{known}.bin"
        self.frames[file] = frame
        self.index.append({"client": sender, "version": VERSIONS[sender], "code": code, "kind": kind, "file": file})

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.bin"):
            old.unlink()
        for file, frame in self.frames.items():
            (folder / file).write_bytes(frame)
        self.index.sort(key=lambda entry: str(entry["file"]))
        lines = ",\n".join(json.dumps(entry, sort_keys=True) for entry in self.index)
        (folder / "index.json").write_text(f"[\n{lines}\n]\n")


class Link:
    """One client connection: who asked what, by opaque number, in either direction."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._client = recorder.client
        self._asked: dict[tuple[str, int], int] = {}

    def saw(self, frame: bytes, *, from_client: bool) -> None:
        header = frame[8 : 8 + (struct.unpack_from(">I", frame, 4)[0] & 0xFFFFFF)]
        code, opaque, flag = (int(m[1]) if (m := p.search(header)) else 0 for p in (CODE, OPAQUE, FLAG))
        sender, other = (self._client, "apache-5.x") if from_client else ("apache-5.x", self._client)
        if flag & 1:
            asked = self._asked.pop((other, opaque), None)
            if asked is not None:
                self._recorder.keep(sender, asked, "reply", frame)
        else:
            self._asked[sender, opaque] = code
            self._recorder.keep(sender, code, "request", frame)


class Proxy:
    """Listens for one server; `rewrite` replaces bytes of equal length in what the server says."""

    def __init__(self, recorder: Recorder, upstream: str, rewrite: tuple[bytes, bytes] | None = None) -> None:
        self._recorder = recorder
        self._upstream = upstream
        self._rewrite = rewrite

    async def serve(self, port: int) -> asyncio.Server:
        return await asyncio.start_server(self._connected, "127.0.0.1", port)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self._upstream.rsplit(":", 1)
        link = Link(self._recorder)
        try:
            up_reader, up_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()
            return
        both = [(reader, up_writer, True), (up_reader, writer, False)]
        await asyncio.gather(*(self._pump(r, w, link, from_client=asks) for r, w, asks in both))

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: Link, *, from_client: bool
    ) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                length = await reader.readexactly(4)
                frame = length + await reader.readexactly(struct.unpack(">I", length)[0])
                if self._rewrite is not None and not from_client:
                    frame = frame.replace(*self._rewrite)
                link.saw(frame, from_client=from_client)
                writer.write(frame)
                await writer.drain()
        writer.close()


@contextlib.contextmanager
def proxied(server: servers.Server, recorder: Recorder) -> Iterator[tuple[str, str]]:
    """Proxies for both parts of a server in a thread of their own; gives name server and broker as clients see them."""
    name_server_port, broker_port = servers.free_ports(), servers.free_ports()
    seen = f"127.0.0.1:{broker_port}"
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    rewrite = (server.broker.encode(), seen.encode())
    for port, proxy in (
        (name_server_port, Proxy(recorder, server.name_server, rewrite)),
        (broker_port, Proxy(recorder, server.broker)),
    ):
        asyncio.run_coroutine_threadsafe(proxy.serve(port), loop).result(5.0)
    yield f"127.0.0.1:{name_server_port}", seen
    asyncio.run_coroutine_threadsafe(end_tasks(), loop).result(5.0)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(5.0)
    loop.close()


async def end_tasks() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def common(driver: Driver, name: str, topic: str) -> None:
    """What all clients can do; a failed delivery shows 36, the wait shows 15."""
    for kind in ("", *CLIENTS[name].kinds):
        driver.call("send", group="orders", kind=kind, topic=topic, count=2, prefix=f"order{kind}", tag="TagA")
    driver.call("subscribe", id="billing", group="billing", topic=topic, expression="TagA || TagB")
    driver.receive("billing", 2)
    driver.call("subscribe", id="failing", group="failing", topic=topic, fail="yes")
    driver.receive("failing", 2)
    driver.settle(6.0)
    with contextlib.suppress(AssertionError):  # the C++ core dies of it, after it has said goodbye
        driver.call("close", 40.0, id="billing")


def java_only(driver: Driver, broker: str, topic: str) -> None:
    """Lookups, offsets, administration, and what this version of GantryMQ still refuses."""
    driver.call("create", topic=f"{topic}Created", broker=broker, queues=2)
    results = driver.call("send", group="orders", topic=topic, count=1, prefix="sought")["results"]
    assert isinstance(results, list)
    driver.call("pull", group="pullers", topic=topic, expression="TagA")
    driver.call("commit", group="pullers", topic=topic, base=1)
    driver.call("committed", group="pullers", topic=topic)
    driver.call("offsets", group="pullers", topic=topic, time=1)
    driver.call("view", topic=topic, id=results[0]["offsetMsgId"])
    driver.call("query", topic=topic, key="sought-key-0")
    driver.call("cluster")
    driver.call("lite", 30.0, group="lite", topic=topic, count=1)
    with contextlib.suppress(DriverError):
        driver.call("send", group="orders", topic=topic, count=1, prefix="late", delay_level=1)
        driver.call("send", group="txorders", kind="transaction", topic=topic, count=1, prefix="half")


def main() -> None:
    home = Path(tempfile.mkdtemp(prefix="gantry-capture-"))
    recorder = Recorder()
    server = servers.make("apache-5.x", home / "server", home / "data")
    server.start()
    try:
        for number, (name, client) in enumerate(CLIENTS.items()):
            topic = f"Orders{number}"
            servers.create_topic(server, topic)
            recorder.client = name
            with proxied(server, recorder) as (name_server, broker):
                driver = client.start(home / name, name_server)
                if name.startswith("java"):
                    java_only(driver, broker, topic)
                common(driver, name, topic)
                driver.quit()
            print(f"{name}: {sorted({e['code'] for e in recorder.index if e['client'] == name})}", file=sys.stderr)
    finally:
        server.close()
    recorder.write(CAPTURED)


if __name__ == "__main__":
    main()
