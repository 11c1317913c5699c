"""Where a sink's driver may die: places in the talk between it and the broker, which a proxy sees."""

from __future__ import annotations

from pathlib import Path

from testkit.frameproxy import Cut, FrameProxy
from testkit.sinkdriver import Driver

SEND, DECIDE, END = 310, 24004, 24005
LINES = 300
PLACES = {
    "in the middle of the rows": Cut(SEND, "answered", LINES // 2),
    "before the commit is decided": Cut(DECIDE, "before", marked=b'"commit"'),
    "when it is decided and nobody was told": Cut(DECIDE, "answered", marked=b'"commit"'),
    "before the halves are ended": Cut(END, "before"),
    "when they have ended and nobody was told": Cut(END, "answered"),
    "before it is done": Cut(DECIDE, "before", marked=b'"done"'),
    "when it is done, and Spark does not know": Cut(DECIDE, "answered", marked=b'"done"'),
}


def kill_at(place: Cut, nameserver: str, topic: str, folder: Path, proxy: FrameProxy) -> None:
    """Lives of the driver until one is killed there; files of LINES lines wait for it."""
    happened = proxy.happened
    while proxy.happened == happened:
        with Driver(nameserver, topic, folder) as driver:
            proxy.wait_for(Cut(place.code, place.when, place.nth, driver.kill, place.marked))
            is_finished = driver.finished()
            assert not is_finished, "the place was never reached"
            assert proxy.happened > happened or driver.was_too_slow(), driver.log()
