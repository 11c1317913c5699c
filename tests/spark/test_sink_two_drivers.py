"""Two drivers on one checkpoint, which nobody may have: one wins each batch, the other one fails and says why."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from testkit.frameproxy import Cut, FrameProxy
from testkit.sinkdriver import Driver, files, run_to_end
from testkit.sinktopic import once

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3600)]

DECIDE = 24004
LINES = 200
# Ours, or Spark's own guard of its checkpoint.
CLEAR = re.compile(
    r"does another query use this sink|was aborted; write the batch again|concurrently|ConcurrentUpdate|"
    r"CONCURRENT_STREAM_LOG_UPDATE|concurrent",
    re.IGNORECASE,
)


def test_a_driver_that_was_away_while_another_one_went_on_fails_clearly(
    proxy: tuple[str, FrameProxy], topic: str, tmp_path: Path
) -> None:
    nameserver, between = proxy
    expected = files(tmp_path, 4, LINES)
    is_deciding = threading.Event()
    # What it stands still for counts; it shall learn the truth even then.
    with Driver(nameserver, topic, tmp_path, commitTimeoutMs="1800000") as away:

        def stop() -> None:
            away.stand_still()
            is_deciding.set()

        between.wait_for(Cut(DECIDE, "before", 2, stop, b'"commit"'))
        assert is_deciding.wait(900), away.log()
        run_to_end(nameserver, topic, tmp_path)
        away.go_on()
        assert not away.finished()
        assert CLEAR.search(away.log()), away.log()
    once(nameserver, topic, expected, tmp_path / "checkpoint")


def test_of_two_drivers_at_once_nobody_loses_or_doubles_a_line(
    proxy: tuple[str, FrameProxy], topic: str, tmp_path: Path
) -> None:
    nameserver, _ = proxy
    expected = files(tmp_path, 1, LINES)
    # Of two that begin a new checkpoint Spark refuses one at once.
    run_to_end(nameserver, topic, tmp_path)
    expected += files(tmp_path, 12, LINES, begin=1)
    with Driver(nameserver, topic, tmp_path) as one, Driver(nameserver, topic, tmp_path) as other:
        finished = [driver.finished() for driver in (one, other)]
        for driver, is_finished in zip((one, other), finished, strict=True):
            assert is_finished or driver.was_too_slow() or CLEAR.search(driver.log()), driver.log()
    run_to_end(nameserver, topic, tmp_path)
    once(nameserver, topic, expected, tmp_path / "checkpoint")
