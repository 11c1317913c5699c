"""Programs of others that tests start stand in tests/bare/programs.txt, with the group of packages that brings each.

`make bare ONLY=programs` starts them in a bare Debian: a machine on which more was installed by hand proves nothing.
"""

from __future__ import annotations

import ast

from bare.programs import ALWAYS, OWN, groups, programs
from testkit.sources import python_files, tree_of
from testkit.startedprograms import started_programs


def test_a_program_that_a_test_starts_is_in_the_table() -> None:
    listed = {program.name for program in programs()}
    missing = {
        f"{path}:{line} starts {name}"
        for path in python_files("tests", "broker/demo", "spark/demo")
        for name, line in started_programs(tree_of(path))
        if name not in listed
    }
    assert not missing, "tests/bare/programs.txt needs a line for each, and requirements/apt.txt its package"


def test_every_program_has_a_group_and_every_group_a_program() -> None:
    brought = {program.group for program in programs()} - {ALWAYS, OWN}
    known = set(groups())
    assert brought <= known, "no such group in requirements/apt.txt"
    # What setup brings is no program; java, node and npm serve spark and docs as well, openssl kube.
    assert known - brought == {"setup", "spark", "docs", "kube"}
    assert len({program.name for program in programs()}) == len(programs())


def test_started_programs_are_found_through_names_and_lists() -> None:
    code = """
TOOLS = ["first", "--help"]
def one(subprocess, shutil):
    command = [*TOOLS, "more"]
    subprocess.run(command)
    shutil.which("second")
    run(["third", "x"])
    run("ours")
    subprocess.Popen(["fourth"] + more)
"""
    found = {name for name, _ in started_programs(ast.parse(code))}
    assert found == {"first", "second", "third", "fourth"}
