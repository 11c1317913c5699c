"""What somebody does who has a clone, spark/README.md and an environment of his own: its lines, as they stand there.

Spark itself is half a gigabyte to download; so the environment borrows PySpark, Arrow and numpy from the one that the
tests run in, and nothing else: the data source and the client come as pip makes them of copies of the folders.  It is a
machine without a compiler, where the client's leaves are the pure ones: the compiled ones take a minute to build.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from testkit.sources import ROOT

README = ROOT / "spark/README.md"
_ADDRESS = "127.0.0.1:9876"
_BORROWED = ("pyspark", "py4j", "pyarrow", "numpy")
_BASE = Path(sys.base_prefix) / "bin"
_NOT_COPIED = shutil.ignore_patterns("*.so", "build", "*.egg-info", "__pycache__", "*.c")
_STEP_S = 1800.0


def typed() -> list[str]:
    """The lines of the README to be typed, without their remarks."""
    found = re.search(r"(?:^    .*\n)+", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return [line.partition("  #")[0].strip() for line in found[0].splitlines()]


def programs() -> list[str]:
    """The README's programs, in their order."""
    return re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


class Newcomer:
    """One in a folder with a clone's `spark` and `broker`; `nameserver` stands for the README's address."""

    def __init__(self, folder: Path, nameserver: str) -> None:
        self.folder = folder
        self.environment = folder / "notebook"
        self._nameserver = nameserver
        for name in ("spark", "broker"):
            shutil.copytree(ROOT / name, folder / name, ignore=_NOT_COPIED)

    def type(self, line: str) -> str:
        """A line of the shell, in the activated environment; its output, or AssertionError."""
        activate = f". {self.environment}/bin/activate\n" if self.environment.exists() else ""
        done = self._run(["bash", "-ec", activate + line.replace(_ADDRESS, self._nameserver)], {})
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        if "venv" in line:
            self._borrow()
        return done.stdout

    def run(self, program: str, nameserver: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        """A program, in the activated environment."""
        file = self.folder / "program.py"
        file.write_text(program.replace(_ADDRESS, nameserver or self._nameserver), encoding="utf-8")
        path = f"{self.environment}/bin:{os.environ['PATH']}"
        return self._run([str(self.environment / "bin/python"), str(file)], {"PATH": path, **variables})

    def _run(self, command: list[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
        clean = {name: text for name, text in os.environ.items() if not name.startswith(("PYSPARK", "PYTHONPATH"))}
        # `python3` is the one that the tests' environments were made of.
        path = f"{_BASE}:{os.environ['PATH']}"
        return subprocess.run(
            command,
            cwd=self.folder,
            env={**clean, "NAMESRV_ADDR": self._nameserver, "PATH": path, "CC": "false", **variables},
            capture_output=True,
            text=True,
            timeout=_STEP_S,
            check=False,
        )

    def _borrow(self) -> None:
        lent = self.folder / "lent"
        lent.mkdir()
        for package in Path(sysconfig.get_path("purelib")).iterdir():
            if package.name.partition(".")[0].partition("-")[0] in _BORROWED:
                (lent / package.name).symlink_to(package)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        pth = self.environment / "lib" / version / "site-packages/lent.pth"
        pth.write_text(f"{lent}\n", encoding="utf-8")
