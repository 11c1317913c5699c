"""Apache's own integration tests of RocketMQ, as Apache compiled them, against three brokers of ours.

The classes are those of `org.apache.rocketmq:rocketmq-test:5.5.0:tests`.  What they inherit is replaced
(`java/conformance/`): their servers run in processes of their own, and what a test looks up in a broker's objects is
asked by requests.  conformance.txt says for each class how many tests pass and why others do not; the table in
broker/docs/compatibility.md is made from it.

    python tests/interop/conformance.py             every class, in a JVM of its own; its results against the file
    python tests/interop/conformance.py Pop Batch   classes whose names have one of these words
    python tests/interop/conformance.py --write     write the table

Names and topics are fixed in some classes, so each run has a fresh store.  A class whose results differ is run again,
alone and once: it has time bounds for a quiet machine.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from interop import prepare, servers
from interop.processes import Child
from testkit.patience import HANG_S

HERE = Path(__file__).resolve().parent
EXPECTED = HERE / "conformance.txt"
DOCUMENT = prepare.CHECKOUT / "broker" / "docs" / "compatibility.md"
PACKAGE = "org.apache.rocketmq.test."
CLUSTER, BROKERS = "DefaultCluster", ("TestBrokerName_1", "TestBrokerName_2", "TestBrokerName_3")
CLASS_S = 180.0  # of one class; then its JVM is killed
PASSED = "passed"
CUT_OFF = "(time)"
_BEGIN, _END = "<!-- conformance: make readme -->", "<!-- /conformance -->"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one test: passed, failed, n/a, ignored or not run; `why` is the failure's text."""

    kind: str
    why: str = ""


@dataclass(slots=True)
class Expected:
    """One class: how many of its tests pass, and the cause of each other one by its name."""

    passed: int
    causes: dict[str, str] = field(default_factory=dict)


Results = dict[str, Outcome]


def expectations(text: str | None = None) -> tuple[dict[str, str], dict[str, Expected]]:
    """Return the causes by their words, and the classes by their names, from conformance.txt or this text.

    Lines: `cause WORD: TEXT`; `left CLASSES: WHY`, which are not run; `CLASS COUNT`, and below it `    TEST WORD` for
    each test that does not pass.
    """
    causes: dict[str, str] = {}
    classes: dict[str, Expected] = {}
    name = ""
    for line in (EXPECTED.read_text() if text is None else text).splitlines():
        if line.startswith("cause "):
            word, _, meaning = line.removeprefix("cause ").partition(": ")
            causes[word] = meaning
        elif line.startswith("left "):
            continue
        elif line.startswith(" "):
            test, word = line.split()
            assert word in causes, f"{name}: {test} has the cause {word}, which is not explained"
            classes[name].causes[test] = word
        elif line and not line.startswith("#"):
            name, count = line.split()
            classes[name] = Expected(int(count))
    return causes, classes


def differences(name: str, found: Results, expected: Expected) -> list[str]:
    """Return what is not as conformance.txt says, a line for each.

    A class may be cut off by its time once all that should pass has passed: what fails by waiting takes long.
    """
    passed = [test for test, outcome in found.items() if outcome.kind == PASSED]
    if len(passed) == expected.passed:
        found = {test: outcome for test, outcome in found.items() if test != CUT_OFF}
    lines = [
        f"{name}: {test} {outcome.kind}: {outcome.why[:300]}"
        for test, outcome in found.items()
        if outcome.kind != PASSED and test not in expected.causes
    ]
    lines += [f"{name}: {test} passes; it was not expected to" for test in passed if test in expected.causes]
    if not lines and len(passed) != expected.passed:
        lines.append(f"{name}: {len(passed)} passed, {expected.passed} were expected to")
    return lines


class Brokers:
    """A name server and three brokers with fresh stores; `flags` tell a JVM of tests where they are."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._children: list[Child] = []
        self.flags: list[str] = []

    def start(self) -> None:
        """Start them one after the other; the order of the brokers is that of their names."""
        where = ["--bind", "127.0.0.1", "--http-port", "-1"]
        name_server = self._started("nameserver", "nameserver", "--nameserver-port", "0", *where)["nameserver"]
        found = []
        for name in BROKERS:
            options = ["--name", name, "--cluster", CLUSTER, "--namesrv", name_server, "--broker-port", "0"]
            options += ["--vip-port", "-2", "--data", str(self._home / name), "--set", "store.disk_used_max=1.0"]
            found.append(f"{name}={self._started(name, 'broker', *options, *where)['broker']}")
        servers.wait_until_routed(name_server)
        self.flags = [f"-Dconformance.nameserver={name_server}", f"-Dconformance.cluster={CLUSTER}"]
        self.flags.append(f"-Dconformance.brokers={','.join(found)}")

    def _started(self, name: str, command: str, *options: str) -> dict[str, str]:
        child = Child(name, [*servers.gantry_command(), command, *options], self._home)
        self._children.append(child)
        line = ""
        while not line.startswith("ready "):
            line = child.line(HANG_S)
        return dict(part.split("=", 1) for part in line.split()[1:])

    def close(self) -> None:
        """Stop them in order; AssertionError when one of them ended before or complains."""
        statuses = {child.name: child.stop() for child in reversed(self._children)}
        assert not any(statuses.values()), statuses
        for child in self._children:
            log = child.log.read_text("utf-8", "replace")
            assert "Traceback" not in log, f"{child.name}: {log[-4000:]}"


@contextmanager
def brokers(home: Path) -> Iterator[Brokers]:
    """Three brokers while the block runs."""
    made = Brokers(home)
    try:
        made.start()
        yield made
    finally:
        made.close()


def run(at: Brokers, names: Sequence[str], home: Path, class_s: float = CLASS_S) -> dict[str, Results]:
    """Run these classes one after the other in one JVM; a class that is cut off by its time has CUT_OFF."""
    flags = [*prepare.TEST_FLAGS, *prepare.JAVA_FLAGS, *servers.java_home(home), *at.flags]
    command = ["java", "-Xmx512m", *flags, "-cp", prepare.conformance_java(), "RunClasses"]
    found: dict[str, Results] = {name: {} for name in names}
    child = Child("tests", [*command, *(PACKAGE + name for name in names)], home, life_s=class_s * len(names) + 30)
    waiting = iter(names)
    now, until = next(waiting), time.monotonic() + class_s
    try:
        while True:
            kind, name, test, why = (*child.line(until - time.monotonic()).split("\t"), "", "", "")[:4]
            if kind == "done":
                now, until = next(waiting), time.monotonic() + class_s
            elif name.startswith(PACKAGE):
                found[now][test or "(class)"] = Outcome(kind, why)
    except StopIteration:
        return found
    except AssertionError:
        found[now][CUT_OFF] = Outcome("not run", f"the class was ended after {class_s:.0f} s")
        return found
    finally:
        child.kill()
        child.stop()


def table(text: str | None = None) -> str:
    """Return the table of compatibility.md: what passes completely, what does not, why, and what is not run."""
    text = EXPECTED.read_text() if text is None else text
    causes, classes = expectations(text)
    whole = [name for name, expected in classes.items() if not expected.causes]
    count = sum(expected.passed for expected in classes.values())
    lines = [
        f"{count} tests pass. These {len(whole)} classes pass completely:",
        "",
        *textwrap.wrap(", ".join(f"`{name}`" for name in sorted(whole)) + ".", 118, break_on_hyphens=False),
        "",
        "| class | passed | not passed |",
        "|-|-|-|",
    ]
    for name, expected in sorted(classes.items()):
        words = list(expected.causes.values())
        if words:
            counts = ", ".join(f"{word} ({words.count(word)})" for word in dict.fromkeys(words))
            lines.append(f"| `{name}` | {expected.passed} | {counts} |")
    lines += ["", "| cause | |", "|-|-|", *(f"| {word} | {meaning} |" for word, meaning in causes.items())]
    left = [line.removeprefix("left ").split(": ", 1) for line in text.splitlines() if line.startswith("left ")]
    lines += ["", "| not run | why |", "|-|-|", *(f"| `{what}` | {why} |" for what, why in left)]
    return "\n".join(lines)


def rendered(document: str) -> str:
    """Return compatibility.md with the table as it is now."""
    before, rest = document.split(_BEGIN)
    return f"{before}{_BEGIN}\n{table()}\n{_END}{rest.split(_END)[1]}"


def main(arguments: Sequence[str]) -> int:
    """Run the classes that the arguments name, print a line for each; the exit code says whether any differs."""
    parser = argparse.ArgumentParser(description="Apache's integration tests against three brokers of ours")
    parser.add_argument("--write", action="store_true", help="write the table of compatibility.md, and run nothing")
    parser.add_argument("words", nargs="*", help="only classes whose names have one of these words")
    given = parser.parse_args(arguments)
    if given.write:
        DOCUMENT.write_text(rendered(DOCUMENT.read_text()))
        return 0
    _, classes = expectations()
    names = [name for name in classes if not given.words or any(word in name for word in given.words)]
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder, brokers(Path(folder) / "servers") as at:
        return report(at, names, classes, Path(folder))


def report(at: Brokers, names: Iterable[str], classes: Mapping[str, Expected], folder: Path) -> int:
    """Run each class in a JVM of its own, again when it differs, and print a line for each; 1 when one differs."""
    wrong: list[str] = []
    passed = 0
    for number, name in enumerate(names):
        for attempt in ("", " (again)"):
            start = time.monotonic()
            found = run(at, [name], folder / f"{number}{attempt.strip()}")[name]
            lines = differences(name, found, classes[name])
            count = sum(outcome.kind == PASSED for outcome in found.values())
            others = ", ".join(f"{test} {one.kind}" for test, one in found.items() if one.kind != PASSED)
            print(f"{time.monotonic() - start:6.1f} s  {name}{attempt}: {count} passed  {others}", flush=True)
            if not lines:
                break
        passed += count
        wrong += lines
    print(f"{passed} tests passed", *wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    os.nice(5)
    sys.exit(main(sys.argv[1:]))
