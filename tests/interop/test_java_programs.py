"""Programs in Java that are run as they stand: the README's, and one with the oldest client that there is, 3.2.6.

A class in one file needs no compiler of its own: `java -cp JARS File.java`.
"""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop import prepare
from interop.conftest import require
from testkit.patience import HANG_S
from testkit.process import GantryProcess
from testkit.sources import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

README = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```java\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
IMPORTS = "client.producer.* client.consumer.* client.consumer.listener.* common.message.Message"
WITHIN_S = 300.0
# Its client gives a send three seconds, and a JVM that has just started on a busy machine may need them for itself.
SLOW = "sendDefaultImpl call timeout"
LIVES_MAX = 10


@pytest.fixture(scope="module")
def nameserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with GantryProcess(tmp_path_factory.mktemp("programs") / "data") as process:
        yield "{}:{}".format(*process.addresses["nameserver"])


class Program:
    """One that was started; everything it prints, and its end."""

    def __init__(self, jars: str, source: Path, home: Path, *arguments: str) -> None:
        flags = ["-Xmx256m", *prepare.TEST_FLAGS, *prepare.JAVA_FLAGS, f"-Duser.home={home}"]
        command = ["java", *flags, "-cp", jars, str(source), *arguments]
        self._popen = subprocess.Popen(
            command, cwd=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.lines: list[str] = []
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self._popen.kill()
        self._popen.wait()
        self._reader.join(HANG_S)
        for pipe in (self._popen.stdin, self._popen.stdout):
            assert pipe is not None
            pipe.close()

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            with self._more:
                self.lines.append(line.rstrip())
                self._more.notify_all()

    def has(self, text: str) -> bool:
        """Whether a line has this."""
        return any(text in line for line in self.lines)

    def until(self, *wanted: str) -> bool:
        """Until each of these was printed; False when a send timed out instead."""
        with self._more:
            is_over = self._more.wait_for(lambda: self.has(SLOW) or all(map(self.has, wanted)), WITHIN_S)
        assert is_over, self.lines
        return all(map(self.has, wanted))


@pytest.mark.parametrize("version", ["4.9.7", "5.x"])
def test_the_program_of_the_readme_sends_and_receives(version: str, nameserver: str, tmp_path: Path) -> None:
    require("java")
    (program,) = PROGRAMS
    imports = "".join(f"import org.apache.rocketmq.{name};\n" for name in IMPORTS.split(" "))
    source = tmp_path / "Readme.java"
    body = program.replace("127.0.0.1:9876", nameserver)
    head = "class Readme { public static void main(String[] arguments) throws Exception {"
    source.write_text(f"{imports}{head}\n{body}}} }}\n")
    for _ in range(LIVES_MAX):
        with Program(prepare.java(version), source, tmp_path) as running:
            if running.until("topic='orders'"):
                return
    pytest.fail(f"{LIVES_MAX} times too slow a machine")


def test_a_client_of_3_2_6_sends_ends_transactions_and_consumes(nameserver: str, tmp_path: Path) -> None:
    require("java")
    source = prepare.HERE / "java" / "alibaba-3.2.6" / "Oldest.java"
    with Program(prepare.oldest_client(), source, tmp_path, nameserver, "oldest") as running:
        wanted = ("sent SEND_OK", "ended ROLLBACK_MESSAGE", "ended COMMIT_MESSAGE", "got plain", "got COMMIT_MESSAGE")
        assert running.until(*wanted), running.lines
        assert not running.has("got ROLLBACK_MESSAGE")
