"""Which requests and periodic jobs read a page of an old file of the store on the loop, where the disk may be slow.

    python -m testkit.coldpages FOLDER      # prints a JSON object: name -> [where it read, the answer's code]

A still broker stores messages until their segment is an old one.  The pages of that, of all queue files and of the
index are made unreadable (mprotect), and are readable again when the cold reader has read them; so "is it in memory"
has an exact answer.  Each request and each job then runs in a forked process.  Reading a cold page there ends it by a
signal, and the stack says where.
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
from typing import NamedTuple

from gantry.broker.metrics.exposition import Metrics
from gantry.broker.parts import Parts
from gantry.leaves import frames
from gantry.model.subscription import GroupConfig
from gantry.store import commitlog, indexfile, queuefiles
from gantry.store import store as stores
from gantry.store.coldrange import ColdRange
from gantry.store.disk import File
from gantry.store.store import Store
from gantry.wire.codes import RequestCode
from testkit import brokerplay, popplay
from testkit.patience import HANG_S
from testkit.stillworld import Still, still_broker

GROUP, TOPIC = "readers", "Old"
_DUE_S, _LEASE_S, _LEVEL = 600, 500, "14"  # 10 minutes
_USED_UP, _IN_ORDER = "used-up", {"order": "true", "attemptId": "1"}
CONTROL = "a read of an old record"  # has to be found
METRICS = "metrics"
GIVEN_UP_IN_ORDER, USED_UP_IN_ORDER = "FORWARD_TO_DLQ in order", "POP_MESSAGE in order behind a dead letter"
_SEGMENT_BYTES = 1 << 20
_PAGE = mmap.PAGESIZE
_UNREADABLE, _READABLE = 0, 1  # PROT_NONE, PROT_READ
_FRAMES = 8  # of a stack
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

    def chill(self, files: Sequence[tuple[str, int, int]]) -> None:
        """Make the pages of these mapped files (path, from which byte on, bytes) unreadable."""
        for line in Path("/proc/self/maps").read_text().splitlines():
            place, _, path = line.partition(" ")[0], *line.rpartition(" ")[1:]
            for wanted, start, size in files:
                if path == wanted:
                    self._address[path] = int(place.partition("-")[0], 16)
                    pages = _pages(start + _PAGE - 1, size)
                    self._cold[path] = set(pages)
                    self._protect(path, pages.start, len(pages), _UNREADABLE)
        assert self._address.keys() == {path for path, _, _ in files}, "each is mapped"

    def in_memory(
        self, file: File, memory: memoryview, base: int, places: Iterable[tuple[int, int]], near_bytes: int
    ) -> bool:
        """In the place of `background.in_memory`."""
        cold = self._cold.get(file.path, set())
        return not any(cold.intersection(_pages(at - base, at - base + size)) for at, size in places)

    def cold_range(self, file: File, memory: memoryview, start: int, size: int) -> ColdRange | None:
        """In the place of `background.cold_range`."""
        is_in = self.in_memory(file, memory, 0, ((start, size),), 0)
        return None if is_in else ColdRange(file, start, start + size)

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
    sizes |= {"store__index_slots": 2000, "store__index_entries": 64}
    with still_broker(folder, **sizes) as still:
        old = _stored(still)
        commitlog.in_memory, commitlog.reading = pages.in_memory, pages.reading
        queuefiles.cold_range = indexfile.cold_range = pages.cold_range
        stores.reading = pages.reading
        pages.chill(_files(_parts(still).store))
        # Processes have the files in common: none of them may write into queues and index.
        _parts(still).store._checkpoint.is_due = lambda flushed: False
        found = {CONTROL: _tried(partial(_read_old_record, still, old))}
        for code in _parts(still).router.codes():
            found[RequestCode(code).name] = _tried(partial(_ask, still, code, old))
        for name in (GIVEN_UP_IN_ORDER, USED_UP_IN_ORDER):
            found[name] = _tried(partial(_answer_to, still, old.requests[name]))
        for job in still.broker._jobs:
            found[job.name] = _tried(partial(_run, still, job.run))
        found[METRICS] = _tried(partial(_render, still))
        print(json.dumps(found))
        sys.stdout.flush()
        os._exit(0)  # the files are unreadable for an orderly stop


def _files(store: Store) -> list[tuple[str, int, int]]:
    """Return what is old of each mapped file: segments, queue files, index files but the slots of the newest, which a
    start reads.
    """
    segments = list(store._log.segments)[:-2]
    for segment in segments:
        assert len(segment.view) == _SEGMENT_BYTES
    queue_files = store._table.files
    for queue in store._table:
        queue.min_offset(store.reader.log_start)  # the first look at a queue's begin is an exception
        for offset in range(queue.first, queue.stored, queue_files.file_entries):
            queue_files.view(queue.folder, offset)
    index_files = [file for file in store._index._files if file._file is not None]
    assert queue_files._open and len(index_files) > 1
    newest = store._index._files[-1]
    return [
        *[(segment.file.path, 0, _SEGMENT_BYTES) for segment in segments],
        *[(path, 0, queue_files.file_bytes) for path in queue_files._open],
        *[(file.path, file._entries_at if file is newest else 0, file.file_bytes) for file in index_files],
    ]


def _parts(still: Still) -> Parts:
    parts = still.broker.parts
    assert parts is not None
    return parts


class Old(NamedTuple):
    """What was stored long ago: the log offset of a message, and requests that name others."""

    log_offset: int
    requests: dict[str, frames.Command]


def _stored(still: Still) -> Old:
    """Store old messages of all kinds, and so many others that their segment is an old one."""
    peer, parts = still.peer(), _parts(still)
    parts.groups.put(GroupConfig(GROUP))

    def call(request: frames.Command) -> frames.Command:
        request.opaque += 1
        peer.replay([frames.encode(request)])
        still.turn(still.serving)
        (answer,) = peer.answers()
        still.settle()
        assert answer.code == 0, answer.remark
        return answer

    def store(topic: str, number: int, size: int = 200, **pairs: str) -> frames.Command:
        named = {"KEYS": f"key{number}", "UNIQ_KEY": f"7F00000100002A9F{number:016X}"}
        return call(brokerplay.send(topic, bytes(size), 0, named | pairs))

    for number in range(20):
        store(TOPIC, number)
    producer = {"clientID": "payer", "producerDataSet": [{"groupName": "payers"}], "consumerDataSet": []}
    call(frames.Command(RequestCode.HEART_BEAT, body=json.dumps(producer).encode()))
    for number in range(20, 24):
        store("Paid", number, TRAN_MSG="true", PGROUP="payers")
    due_ms = still.clock.now_ms() + _DUE_S * 1000
    delayed = [store("Later", number, TIMER_DELIVER_MS=str(due_ms)) for number in range(24, 28)]
    store("Later", 28, DELAY=_LEVEL)
    handles = [
        popplay.popped(call(popplay.pop_request(4, _LEASE_S * 1000, topic=TOPIC, consumerGroup=group, **more)), group)
        for group, more in (("poppers", {}), ("orderly", _IN_ORDER))
    ]
    parts.groups.put(GroupConfig(_USED_UP, retry_times_max=0))
    call(popplay.pop_request(4, 1000, topic=TOPIC, consumerGroup=_USED_UP, **_IN_ORDER))
    for number in range(100, 180):
        store("Filler", number, 60_000)
    still.pass_s(5.0)
    parts.offsets.commit(GROUP, TOPIC, 0, 3)  # its next message is an old one
    entry = parts.store.reader.entry(TOPIC, 0, 7)
    assert entry is not None
    return Old(entry[0], _naming(parts, delayed, handles))


def _naming(
    parts: Parts, delayed: list[frames.Command], handles: list[list[popplay.Popped]]
) -> dict[str, frames.Command]:
    """Return requests that name old messages by what their answers told, by the code's name or what they do."""
    (half, shown, *_), ((popped, changed, given_up, *_), in_order) = parts.transactions.book.open.values(), handles
    key = f"7F00000100002A9F{25:016X}"
    end = {
        "producerGroup": "payers",
        "tranStateTableOffset": half.root,
        "commitLogOffset": half.log_offset,
        "commitOrRollback": 8,
        "fromTransactionCheck": "false",
        "msgId": "",
        "transactionId": "",
    }
    recalled = {"topic": "Later", "recallHandle": delayed[0].ext["recallHandle"]}
    named = {
        RequestCode.END_TRANSACTION: end,
        RequestCode.SHOW_TRANSACTION: {"id": shown.root},
        RequestCode.SETTLE_TRANSACTION: {"id": shown.root, "action": "commit", "operator": "me"},
        RequestCode.CANCEL_DELAYED: {"id": key, "operator": "me"},
        RequestCode.RECALL_MESSAGE: recalled,
        RequestCode.RETIME_DELAYED: recalled | {"delayMs": 5000},
    }
    requests = {
        code.name: frames.Command(code, ext={name: str(value) for name, value in ext.items()})
        for code, ext in named.items()
    }
    forward = RequestCode.FORWARD_TO_DLQ
    return requests | {
        "ACK_MESSAGE": popplay.ack_request(popped, group="poppers"),
        "BATCH_ACK_MESSAGE": popplay.batch_ack_request([popped], "poppers", TOPIC),
        "CHANGE_MESSAGE_INVISIBLETIME": popplay.change_request(changed, 5000, consumerGroup="poppers"),
        "FORWARD_TO_DLQ": popplay.ack_request(given_up, forward, "poppers"),
        GIVEN_UP_IN_ORDER: popplay.ack_request(in_order[0], forward, "orderly"),
        USED_UP_IN_ORDER: popplay.pop_request(topic=TOPIC, consumerGroup=_USED_UP, **_IN_ORDER | {"attemptId": "2"}),
    }


def _read_old_record(still: Still, old: Old) -> None:
    assert _parts(still).store.reader.record_at(old.log_offset) is not None


def _render(still: Still) -> int:
    """Render /metrics; the length of the page."""
    return len(still.run(still.serving, Metrics(lambda: _parts(still)).text()))


def _ask(still: Still, code: int, old: Old) -> int | None:
    """Send a request of this code; return the code of its answer, None without one."""
    is_place = code in (RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.VIEW_MESSAGE_BY_ID)
    fields = _FIELDS | ({"offset": str(old.log_offset)} if is_place else {})
    return _answer_to(still, old.requests.get(RequestCode(code).name, frames.Command(code, ext=fields)))


def _answer_to(still: Still, request: frames.Command) -> int | None:
    """Send this request; return the code of its answer, None without one."""
    peer = still.peer()
    request.opaque = 1
    peer.replay([frames.encode(request)])
    answers = []
    for _ in range(_TURNS):
        still.turn(still.serving)
        answers += peer.answers()
        still.world.now += _TURN_S
    return answers[0].code if answers else None


def _run(still: Still, job: Callable[[], Iterable[object] | None]) -> None:
    """Run a job again and again when all that waits is due."""

    def whole() -> None:
        for _ in job() or ():
            pass

    still.world.now += 2 * max(_DUE_S, _LEASE_S)
    for _ in range(_TURNS):
        still.within(still.serving, whole)
        still.world.now += _TURN_S


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
