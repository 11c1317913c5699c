"""Foreign programs as children that cannot outlive or escape a test.

Every child has a process group of its own, a HOME in a temporary folder (these clients write logs there), its stderr in
a file, and a kill timer.  A driver is a child that speaks JSON lines: commands go to its stdin with a number, the
answer carries the same number, everything else is an event.  Lines that are not JSON objects are the libraries'
chatter and are dropped.
"""

import atexit
import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from testkit.patience import HANG_S

Json = dict[str, object]

LIFE_S = 5400.0  # longer than one test run on a busy machine; a hung JVM must not keep it busy for ever


def others_environment() -> dict[str, str]:
    """Without the variables of tests: a broker of ours refuses what begins with GANTRY_ and is no key."""
    ours = ("GANTRY_FOLDER_", "GANTRY_INTEROP_", "GANTRY_TEST_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


class DriverError(Exception):
    """The client under test answered with an error; .code is the broker's response code where there was one."""

    def __init__(self, answer: Json) -> None:
        super().__init__(f"{answer.get('error')}: {answer.get('message')}")
        self.answer = answer
        self.code = answer.get("code")


class Child:
    """A started program; stop() and the kill timer end its whole group."""

    def __init__(
        self,
        name: str,
        args: Sequence[str],
        home: Path,
        env: Mapping[str, str] | None = None,
        *,
        life_s: float = LIFE_S,
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.log = home / f"{name}.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*args],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=home,
                # The C++ client 2.1.11 would write its logs below /.
                env={**others_environment(), "HOME": str(home), "ROCKETMQ_CLIENT_LOG_DIR": str(home), **(env or {})},
                start_new_session=True,
            )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name=f"{name}-stdout", daemon=True)
        self._reader.start()
        self._timer = self._end_after(life_s)
        atexit.register(self.kill)  # the timer dies with this process; its children must not stay behind

    def _end_after(self, life_s: float) -> threading.Timer:
        timer = threading.Timer(life_s, self.kill)
        timer.daemon = True
        timer.start()
        return timer

    def live_for(self, life_s: float) -> None:
        """It is needed so long from now on."""
        self._timer.cancel()
        self._timer = self._end_after(life_s)

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stdout:
            for line in stdout:
                self._lines.put(line.decode("utf-8", "replace").rstrip("\n"))
        self._lines.put(None)

    def line(self, timeout_s: float) -> str:
        """The next line of stdout; AssertionError with the end of the log when it does not come."""
        try:
            line = self._lines.get(timeout=max(timeout_s, 0.0))
        except queue.Empty:
            raise AssertionError(f"{self.name} said nothing for {timeout_s:.1f} s; {self.tail()}") from None
        if line is None:
            self._lines.put(None)
            raise AssertionError(f"{self.name} ended with {self.process.wait()}; {self.tail()}")
        return line

    def tail(self) -> str:
        return "its log ends:\n" + "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-25:])

    def write(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL for the group, like a power button; no error when it is gone already."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def stop(self, timeout_s: float = HANG_S) -> int:
        """SIGTERM, then the exit status; killed when it takes longer than timeout_s."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.wait(timeout_s)

    def wait(self, timeout_s: float) -> int:
        try:
            status = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            status = self.process.wait(5.0)
        self._timer.cancel()
        atexit.unregister(self.kill)
        self._reader.join(5.0)
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        return status


class Driver(Child):
    """A client under remote control."""

    def __init__(
        self,
        name: str,
        args: Sequence[str],
        home: Path,
        env: Mapping[str, str] | None = None,
        *,
        life_s: float = LIFE_S,
    ) -> None:
        super().__init__(name, args, home, env, life_s=life_s)
        self.events: list[Json] = []
        self._answers: dict[int, Json] = {}
        self._last = 0
        self.event("ready")

    def call(self, op: str, timeout_s: float = HANG_S, **fields: object) -> Json:
        """Run one command; DriverError when the client said no."""
        return self.finish(self.begin(op, **fields), timeout_s)

    def begin(self, op: str, **fields: object) -> int:
        self._last += 1
        self.write(json.dumps({"op": op, "reply": self._last, **fields}))
        return self._last

    def finish(self, number: int, timeout_s: float = HANG_S) -> Json:
        self._until(lambda: number in self._answers, timeout_s)
        answer = self._answers.pop(number)
        if not answer["ok"]:
            raise DriverError(answer)
        return answer

    def event(self, kind: str, timeout_s: float = HANG_S) -> Json:
        """The first event of a kind not taken before."""
        self._until(lambda: any(e["event"] == kind for e in self.events), timeout_s)
        event = next(e for e in self.events if e["event"] == kind)
        self.events.remove(event)
        return event

    def received(self, consumer: str) -> list[Json]:
        return [e for e in self.events if e["event"] == "message" and e["consumer"] == consumer]

    def receive(self, consumer: str, count: int, timeout_s: float = HANG_S) -> list[Json]:
        """Wait until a consumer has got count messages in all since the last forget(), and give them."""
        try:
            self._until(lambda: len(self.received(consumer)) >= count, timeout_s)
        except AssertionError as error:
            others = [e for e in self.events if e["event"] != "message"][-5:]
            bodies = sorted(str(e["body"])[:40] for e in self.received(consumer)[-20:])
            raise AssertionError(
                f"{len(self.received(consumer))} of {count} messages, {bodies} among them; events {others}; {error}"
            ) from None
        return self.received(consumer)

    def settle(self, quiet_s: float) -> None:
        """Take lines until none has come for quiet_s: for claims that something does not happen."""
        with contextlib.suppress(AssertionError):
            while self.process.poll() is None:
                self._take(self.line(quiet_s))

    def take(self) -> list[Json]:
        """The events that have come by now, each once; waits for nothing."""
        with contextlib.suppress(queue.Empty):
            while (line := self._lines.get_nowait()) is not None:
                self._take(line)
            self._lines.put(None)  # it has ended
        events, self.events = self.events, []
        return events

    def forget(self) -> None:
        self.events.clear()

    def quit(self) -> None:
        with contextlib.suppress(BrokenPipeError, ValueError):  # it may be gone, and its pipe closed
            self.write(json.dumps({"op": "quit", "reply": 0}))
        self.wait(10.0)

    def _until(self, true: Callable[[], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not true():
            self._take(self.line(deadline - time.monotonic()))

    def _take(self, line: str) -> None:
        if not line.startswith("{"):
            return
        message: Json = json.loads(line)
        if "reply" in message:
            number = message["reply"]
            assert isinstance(number, int)
            self._answers[number] = message
        else:
            self.events.append(message)


@contextlib.contextmanager
def running(driver: Driver) -> Iterator[Driver]:
    try:
        yield driver
    finally:
        driver.quit()
