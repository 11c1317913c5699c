"""`pip install ./spark` of a copy, in an environment of its own, as spark/README.md has it: Spark finds the source."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from testkit.newcomer import README, Newcomer, programs, typed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def test_what_pip_makes_of_a_copy_of_the_folder_is_all_that_the_six_lines_need(nameserver: str, tmp_path: Path) -> None:
    newcomer = Newcomer(tmp_path, nameserver)
    lines = typed()
    assert [line.split()[0] for line in lines] == ["python3", "pip", "pip", "gantry", "gantry"]
    for line in lines:
        # A broker runs already; what it needs is no business of the data source.
        if "broker" not in line and "standalone" not in line:
            newcomer.type(line)
    six, stream, *_ = programs()
    assert len(six.splitlines()) == 6
    which = "import pyspark_gantrymq, gantry\nprint(pyspark_gantrymq.__file__, gantry.__file__)\n"
    done = newcomer.run(which + six + stream)
    assert done.returncode == 0, done.stderr[-4000:]
    own, client = done.stdout.split()[:2]
    assert own.startswith(f"{newcomer.environment}/lib") and client.startswith(f"{newcomer.environment}/lib")
    assert "tea, 250 g" in done.stdout and "coffee, 500 g" in done.stdout and "Berlin" in done.stdout

    what = "DATA_SOURCE_NOT_FOUND"
    elsewhere = newcomer.run(six, PYSPARK_PYTHON=sys._base_executable)
    assert elsewhere.returncode != 0 and what in elsewhere.stderr, elsewhere.stderr[-4000:]
    assert what in README.read_text(encoding="utf-8")
