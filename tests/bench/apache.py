"""Apache's broker 5.x as its own documents recommend to run it, for figures beside ours.

The JVM gets the flags of Apache's `bin/runbroker.sh` for G1 with a heap of 2 GiB instead of 8; half of it is young, as
there.  The files have the sizes of a real broker, not those of the interop tests.  The rest is Apache's default, but:

    useEpollNativeSelector     true: what Apache recommends on Linux
    waitTimeMillsInSendQueue,  20 s: a full window of the load generator is not to be refused after 200 ms
    osPageCacheBusyTimeOutMills
    maxTransferCount..., Bytes 32 messages and 256 KiB a pull, also from old parts of the log, as ours is asked for
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from servers import Server

if TYPE_CHECKING:
    from interop.servers import Apache

_TESTS = Path(__file__).resolve().parent.parent
HEAP = "2g"
FLAGS = (
    "-server", "-Xms2g", "-Xmn1g", "-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25",
    "-XX:InitiatingHeapOccupancyPercent=30", "-XX:SoftRefLRUPolicyMSPerMB=0", "-XX:-OmitStackTraceInFastThrow",
    "-XX:+AlwaysPreTouch", "-XX:MaxDirectMemorySize=2g", "-XX:-UseLargePages",
)  # fmt: skip
SETTINGS: Mapping[str, str | int] = {
    "maxMessageSize": 4 << 20,
    "mappedFileSizeCommitLog": 1 << 30,
    "mappedFileSizeConsumeQueue": 20 * 300_000,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
    "flushConsumerOffsetInterval": 5_000,
    "transactionCheckInterval": 30_000,
    "transactionTimeOut": 6_000,
    "timerWheelEnable": "true",
    "useEpollNativeSelector": "true",
    "brokerIP2": "127.0.0.1",
    "maxTransferCountOnMessageInMemory": 32,
    "maxTransferCountOnMessageInDisk": 32,
    "maxTransferBytesOnMessageInMemory": 256 << 10,
    "maxTransferBytesOnMessageInDisk": 256 << 10,
}
# 5.x answers at once under SYNC_MASTER unless it is told how many have to have a message.
_SYNC_MASTER = {"brokerRole": "SYNC_MASTER", "totalReplicas": 2, "inSyncReplicas": 2, "minInSyncReplicas": 2}


def is_here() -> bool:
    """Whether there is a Java to run it with."""
    return shutil.which("java") is not None and shutil.which("mvn") is not None


def prepared(folder: Path, *, flush: str = "ASYNC_FLUSH", **settings: str | int) -> Apache:
    """A broker and its name server that are not started yet."""
    return _made(folder, {"flushDiskType": flush, **settings})


def _made(folder: Path, settings: Mapping[str, str | int], beside: Apache | None = None) -> Apache:
    if str(_TESTS) not in sys.path:
        sys.path.insert(0, str(_TESTS))
    from interop import servers as others

    home, data = folder / "home", folder / "data"
    return others.Apache("5.x", home, data, {**SETTINGS, **settings}, heap=HEAP, flags=FLAGS, beside=beside)


def port_of(broker: Apache) -> int:
    """The port that takes the load."""
    return int(broker.broker.rpartition(":")[2])


@contextmanager
def apache(folder: Path, *, flush: str = "ASYNC_FLUSH", **settings: str | int) -> Iterator[Server]:
    """A broker that serves."""
    with _running(prepared(folder, flush=flush, **settings)) as server:
        yield server


@contextmanager
def apache_pair(folder: Path) -> Iterator[tuple[Server, Server]]:
    """A SYNC_MASTER that waits for its slave, and the slave."""
    master = _made(folder / "master", {**_SYNC_MASTER})
    with _running(master) as first:
        slave = _made(folder / "slave", {"brokerRole": "SLAVE", "brokerId": 1}, beside=master)
        with _running(slave) as second:
            yield first, second


@contextmanager
def _running(broker: Apache) -> Iterator[Server]:
    begin = time.monotonic()
    try:
        broker.start()
        assert broker.broker_pid is not None
        yield Server(broker.broker_pid, port_of(broker), time.monotonic() - begin)
    finally:
        broker.close()
