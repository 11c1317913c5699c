"""Who imports whom: the contracts of pyproject.toml, and what the client may load."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from gantry.leaves import COMPILED
from testkit import darwin
from testkit.sources import ROOT

HERE_OR_STANDARD = """
import sys
import {module}
third = sorted({{
    name.partition(".")[0] for name, module in sys.modules.items()
    if "site-packages" in (getattr(module, "__file__", None) or "")
}} - {{"gantry", "_virtualenv", "__editable___gantrymq_0_1_0_finder", "_distutils_hack"}})
print(*third)
"""

LOADED_BY_THE_CLIENT = """
import importlib, pkgutil, sys
import gantry.client
from gantry.leaves import COMPILED
for found in pkgutil.walk_packages(gantry.client.__path__, "gantry.client."):
    importlib.import_module(found.name)
files = sorted(module.__file__ for name, module in sys.modules.items() if module and name.partition(".")[0] == "gantry")
print(COMPILED, *files, sep="\\n")
"""


def test_the_import_contracts_hold() -> None:
    tool = Path(sys.executable).with_name("lint-imports")
    if not tool.exists():
        pytest.skip("missing lint-imports; make dev")
    done = subprocess.run([str(tool), "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.parametrize(
    "module",
    [
        "gantry.client.producer",
        "gantry.client.consumer",
        "gantry.client.admin",
        "gantry.client.blocking",
        "gantry.client.blockingpop",
        "gantry.client.simpleconsumer",
        "gantry.transport.client",
        "gantry.wire.bodies",
        "gantry.mns.transactiontable",
        "gantry.cli.main",
    ],
)
def test_the_client_loads_nothing_but_the_standard_library(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HERE_OR_STANDARD.format(module=module)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_the_client_and_all_that_it_loads_name_nothing_that_only_linux_has() -> None:
    compiled, *files = darwin.run(LOADED_BY_THE_CLIENT).splitlines()
    assert compiled == str(COMPILED), "its compiled leaves do without those of the store"
    missing = {f"{module.__name__}.{name}" for module, names in darwin.MISSING.items() for name in names.split()}
    named = [
        f"{Path(file).relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}"
        for file in files
        if file.endswith(".py")
        for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in missing
    ]
    assert not named and len(files) > 80


def test_the_client_gives_its_names_and_loads_only_those_that_are_used() -> None:
    code = (
        "import sys, gantry.client as client; before = {*sys.modules}\n"
        "print(*(name for name in before if name.startswith('gantry.')), 'typing' in before)\n"
        "client.BlockingProducer, client.Message; print('asyncio' in sys.modules)\n"
        "print([name for name in client.__all__ if getattr(client, name).__name__ != name])\n"
        "print({*client.__all__} <= {*dir(client)}, hasattr(client, 'Nobody'))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{code}"],
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.stdout.splitlines() == ["gantry.client False", "False", "[]", "True False"], done.stdout + done.stderr
