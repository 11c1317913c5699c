"""Which requests and periodic jobs read a page of an old segment on the loop, where the disk may be slow.

    python -m testkit.coldpages FOLDER      # prints a JSON object: name -> [where it read, the answer's code]

A still broker stores messages until their segment is an old one.  Its pages are made unreadable (mprotect), and are
readable again when the cold reader has read them; so "is it in memory" has an exact answer.  Each request and each job
then runs in a forked process.  Reading a cold page there ends it by a signal, and the stack says where.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import mmap
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from gantry.broker.metrics.exposition import Metrics
from gantry.broker.parts import Parts
from gantry.leaves import frames
from gantry.model.subscription import GroupConfig
from gantry.store import commitlog
from gantry.store.disk import File
from gantry.wire.codes import RequestCode
from testkit import brokerplay
from testkit.patience import HANG_S
from testkit.stillworld import Still, still_broker

GROUP, TOPIC = "readers", "Old"
CONTROL = "a read of an old record"  # has to be found
METRICS = "metrics"
_SEGMENT_BYTES = 1 << 20
_PAGE = mmap.PAGESIZE
_UNREADABLE, _READABLE = 0, 1  # PROT_NONE, PROT_READ
_FRAMES = 6  # of a stack
_TURNS, _TURN_S = 20, 0.1
# What requests name; each takes the fields that it knows.
_FIELDS = {
    "topic": TOPIC,
    "group": GROUP,
    "consumerGroup": GROUP,
    "producerGroup": GROUP,
    "groupName": GROUP,
    "clientID": "client",
    "clientId": "client",
    "originTopic": TOPIC,
    "queueId": "0",
    "offset": "0",
    "queueOffset": "0",
    "key": "key7",
    "maxNum": "32",
    "beginTimestamp": "0",
    "endTimestamp": str(1 << 60),
    "maxMsgNums": "32",
    "invisibleTime": "60000",
    "pollTime": "0",
    "bornTime": "1700000000000",
    "initMode": "0",
    "expType": "TAG",
    "exp": "*",
    "subscription": "*",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subVersion": "0",
    "delayLevel": "3",
    "maxReconsumeTimes": "16",
    "unitMode": "false",
    "isForce": "true",
    "compareGroup": GROUP,
    "srcGroup": GROUP,
    "destGroup": "others",
    "attemptId": "1",
    "timestamp": "1",
    "isOrder": "false",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
}


class ColdPages:
    """The pages of old segments that nobody has read since."""

    def __init__(self) -> None:
        self._cold: dict[str, set[int]] = {}
        self._address: dict[str, int] = {}
        self._mprotect = ctypes.CDLL(None, use_errno=True).mprotect

    def chill(self, files: Sequence[tuple[str, int]]) -> None:
        """Make all pages of these mapped files (path, bytes) unreadable."""
        for line in Path("/proc/self/maps").read_text().splitlines():
            place, _, path = line.partition(" ")[0], *line.rpartition(" ")[1:]
            for wanted, size in files:
                if path == wanted:
                    self._address[path] = int(place.partition("-")[0], 16)
                    self._cold[path] = set(range(size // _PAGE))
                    self._protect(path, 0, size // _PAGE, _UNREADABLE)
        assert self._address.keys() == {path for path, _ in files}, "each is mapped"

    def in_memory(
        self, file: File, memory: memoryview, base: int, places: Iterable[tuple[int, int]], near_bytes: int
    ) -> bool:
        """In the place of `background.in_memory`."""
        cold = self._cold.get(file.path, set())
        return not any(cold.intersection(_pages(at - base, at - base + size)) for at, size in places)

    def reading(self, file: File, ranges: Sequence[tuple[int, int]], ahead_bytes: int = 0) -> Callable[[], None]:
        """In the place of `background.reading`."""
        return partial(self._read, file.path, list(ranges))

    def _read(self, path: str, ranges: Sequence[tuple[int, int]]) -> None:
        for start, end in ranges:
            for page in self._cold.get(path, set()).intersection(_pages(start, end)):
                self._protect(path, page, 1, _READABLE)
                self._cold[path].discard(page)

    def _protect(self, path: str, first: int, count: int, how: int) -> None:
        address = ctypes.c_void_p(self._address[path] + first * _PAGE)
        assert self._mprotect(address, ctypes.c_size_t(count * _PAGE), how) == 0


def _pages(start: int, end: int) -> range:
    return range(start // _PAGE, -(-end // _PAGE))


def main(folder: Path) -> None:
    """Print where each request and each job of a broker below this folder read a cold page."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # processes end by a signal here, as they are meant to
    pages = ColdPages()
    sizes = {"store__segment_bytes": _SEGMENT_BYTES, "messages__body_bytes_max": 64 << 10, "store__warm_bytes": 0}
    with still_broker(folder, **sizes) as still:
        place = _stored(still)
        commitlog.in_memory, commitlog.reading = pages.in_memory, pages.reading
        segments = list(_parts(still).store._log.segments)[:-2]
        for segment in segments:
            assert len(segment.view) == _SEGMENT_BYTES
        pages.chill([(segment.file.path, _SEGMENT_BYTES) for segment in segments])
        found = {CONTROL: _tried(partial(_read_old_record, still, place))}
        for code in _parts(still).router.codes():
            found[RequestCode(code).name] = _tried(partial(_ask, still, code, place))
        for job in still.broker._jobs:
            found[job.name] = _tried(partial(_run, still, job.run))
        found[METRICS] = _tried(partial(_render, still))
        print(json.dumps(found))
        sys.stdout.flush()
        os._exit(0)  # the files are unreadable for an orderly stop


def _parts(still: Still) -> Parts:
    parts = still.broker.parts
    assert parts is not None
    return parts


def _stored(still: Still) -> int:
    """Store old messages, and so many others that their segment is an old one; the log offset of an old one."""
    peer = still.peer()
    _parts(still).groups.put(GroupConfig(GROUP))
    for number in range(100):
        body = bytes(200 if number < 20 else 60_000)
        topic = TOPIC if number < 20 else "Filler"
        pairs = {"KEYS": f"key{number}", "UNIQ_KEY": f"7F00000100002A9F{number:016X}"}
        request = brokerplay.send(topic, body, 0, pairs)
        request.opaque = number
        peer.replay([frames.encode(request)])
        assert [answer.code for answer in peer.answers()] == [0]
        still.settle()
    still.pass_s(5.0)
    _parts(still).offsets.commit(GROUP, TOPIC, 0, 3)  # its next message is an old one
    entry = _parts(still).store.reader.entry(TOPIC, 0, 7)
    assert entry is not None
    return entry[0]


def _read_old_record(still: Still, log_offset: int) -> None:
    assert _parts(still).store.reader.record_at(log_offset) is not None


def _render(still: Still) -> int:
    """Render /metrics; the length of the page."""
    return len(still.run(still.serving, Metrics(lambda: _parts(still)).text()))


def _ask(still: Still, code: int, log_offset: int) -> int | None:
    """Send this request; return the code of its answer, None without one."""
    peer = still.peer()
    is_place = code in (RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.VIEW_MESSAGE_BY_ID)
    fields = _FIELDS | ({"offset": str(log_offset)} if is_place else {})
    peer.replay([frames.encode(frames.Command(code, ext=fields, opaque=1))])
    answers = []
    for _ in range(_TURNS):
        still.turn(still.serving)
        answers += peer.answers()
        still.world.now += _TURN_S
    return answers[0].code if answers else None


def _run(still: Still, job: Callable[[], Iterable[object] | None]) -> None:
    def whole() -> None:
        for _ in job() or ():
            pass

    still.within(still.serving, whole)


def _tried(run: Callable[[], int | None]) -> tuple[list[str], int | None]:
    """Run it in a process of its own; the innermost functions, where that has read a cold page, and what it returns."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        os.close(reads)
        faulthandler.enable(writes)
        signal.alarm(int(HANG_S))
        try:
            told = json.dumps(run())
        except BaseException as error:  # noqa: BLE001  told to the parent, which ends by it
            told = repr(error)
        os.write(writes, told.encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        return [], json.loads(text)  # an exception is no JSON: it ends this program with its text
    lines = [line.strip() for line in text.splitlines() if line.startswith("  File ")]
    return [line.rpartition("/gantry/")[2] for line in lines[:_FRAMES]] or [f"status {status}"], None


if __name__ == "__main__":
    main(Path(sys.argv[1]))
