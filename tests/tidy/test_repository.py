"""What lies where, and what must not be in the repository at all."""

from __future__ import annotations

import ast
import itertools
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache

import pytest

from testkit.sources import ROOT, git, nodes_of, python_files, tracked_files

# The user fixed the folders at the top; documents and the tools' configuration may stand beside them.
SOURCE_AT_THE_TOP = {"operator", "broker", "charts", "crds", "spark", "tests", "Dockerfile", "skaffold.yaml"}
FOLDERS_BESIDE = {".ci", ".devcontainer", "requirements"}
FILES_BESIDE = {
    ".gitignore", ".dockerignore", ".pre-commit-config.yaml", "Makefile", "pyproject.toml",
    "README.md", "README.zh-CN.md", "ARCHITECTURE.md", "STYLE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md",
    "LICENSE",
}  # fmt: skip

# What the user named, by the name under which it is installed and the one under which it is imported.
NAMED = {
    "aiohttp": "aiohttp",
    "grpcio": "grpc",
    "grpcio-health-checking": "grpc_health",
    "grpcio-reflection": "grpc_reflection",
    "kopf": "kopf",
    "kubernetes": "kubernetes",
    "prometheus-client": "prometheus_client",
    "protobuf": "google",
    "pyspark": "pyspark",
    "pyyaml": "yaml",
}
OURS = {"gantrymq": "gantry"}
SHIPPED = ("broker", "operator", "spark")
OWN = {"broker": "gantry", "operator": "gantry_operator", "spark": "pyspark_gantrymq"}
COMES_WITH = {"yarl": "aiohttp", "py4j": "pyspark"}  # parts of the other one's interface

MACHINE_PATH = re.compile(r"(?:^|[^\w.$}\])-])(/(?:work|root|home)/[\w.-]+)")
INDEX_ADDRESS = re.compile(
    r"--(?:extra-)?index-url|pypi\.org|pythonhosted\.org|registry\.npm|npmmirror|repo1?\.maven|maven\.aliyun|"
    r"\"resolved\":\s*\"http|deb\.debian\.org"
)


def test_the_top_level_holds_only_the_users_folders_and_documents() -> None:
    for line in git("ls-tree", "HEAD"):
        kind, name = line.split()[1], line.split("\t")[1]
        allowed = SOURCE_AT_THE_TOP | (FOLDERS_BESIDE if kind == "tree" else FILES_BESIDE)
        assert name in allowed, f"{kind} {name} at the top level"


def test_the_operators_folder_never_becomes_a_package() -> None:
    assert "operator/__init__.py" not in tracked_files(), "it would shadow the standard library's operator"


def _declared(*folders: str) -> set[str]:
    declared = set()
    for path in tracked_files():
        if path.endswith("pyproject.toml") and path.startswith(tuple(f"{each}/" for each in folders or SHIPPED)):
            project = tomllib.loads((ROOT / path).read_text(encoding="utf-8")).get("project", {})
            extras = project.get("optional-dependencies", {})
            wanted = itertools.chain(project.get("dependencies", []), *extras.values())
            if "dependencies" in project.get("dynamic", []):
                wanted = itertools.chain(wanted, _install_requires(path.replace("pyproject.toml", "setup.py")))
            declared |= {re.split(r"[^\w.-]", each)[0].lower() for each in wanted}
    return declared


def _install_requires(path: str) -> Iterator[str]:
    """What a setup.py asks for, where a path decides how."""
    for node in nodes_of(path):
        if isinstance(node, ast.keyword) and node.arg == "install_requires":
            texts = [one for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            yield from {one.value for one in texts if re.match(r"[a-z]+", one.value)}


@cache
def _imported_by_shipped_code(*folders: str) -> set[str]:
    shipped = [path for path in python_files(*(folders or SHIPPED)) if "/src/" in path]
    names = set()
    for path in shipped:
        for node in nodes_of(path):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
                given = (one.value for one in ast.walk(node) if isinstance(one, ast.Constant))
                names |= {name.partition(".")[0] for name in given if isinstance(name, str)}
    return names


@pytest.mark.parametrize("package", sorted(NAMED))
def test_a_package_that_the_user_named_is_declared_and_imported(package: str) -> None:
    assert package in _declared(), f"no distribution declares {package}"
    assert NAMED[package] in _imported_by_shipped_code(), f"no shipped module imports {NAMED[package]}"


def test_what_a_distribution_declares_its_code_imports() -> None:
    imported = _imported_by_shipped_code()
    unused = {name for name in _declared() if (NAMED | OURS).get(name, name).replace("-", "_") not in imported}
    assert not unused, f"declared, and imported by nobody: {unused}"


@pytest.mark.parametrize("folder", SHIPPED)
def test_what_the_code_of_a_distribution_imports_is_declared(folder: str) -> None:
    declared = {(NAMED | OURS).get(name, name).replace("-", "_") for name in _declared(folder)}
    third = _imported_by_shipped_code(folder) - sys.stdlib_module_names - {OWN[folder]}
    undeclared = {name for name in third if name not in declared and COMES_WITH.get(name) not in declared}
    assert not undeclared, f"imported by {folder}, and not declared in {folder}/pyproject.toml: {undeclared}"


def test_no_address_of_an_index_and_no_path_of_a_machine() -> None:
    found = []
    for path in tracked_files():
        if path == "tests/tidy/test_repository.py":
            continue
        try:
            text = (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            hit = INDEX_ADDRESS.search(line) or MACHINE_PATH.search(line)
            if hit:
                found.append(f"{path}:{number}: {hit[0].strip()}")
    assert not found, "\n".join(found[:20])


def test_the_distribution_carries_the_licence_of_the_repository() -> None:
    for folder in ("broker", "operator", "spark"):
        assert (ROOT / folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_every_pinned_package_has_its_hashes() -> None:
    for path in tracked_files():
        if path.startswith("requirements/") and path.endswith(".txt") and not path.endswith("apt.txt"):
            entries = re.split(r"\n(?=[a-z])", (ROOT / path).read_text(encoding="utf-8"))
            for entry in entries:
                if re.match(r"[a-z]", entry):
                    assert "==" in entry and "--hash=sha256:" in entry, f"{path}: {entry.splitlines()[0]}"


def test_what_the_distribution_asks_for_is_pinned() -> None:
    pinned = re.findall(r"^([\w.-]+)==", (ROOT / "requirements/broker.txt").read_text(encoding="utf-8"), re.MULTILINE)
    project = tomllib.loads((ROOT / "broker/pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {re.split(r"[^\w.-]", each)[0] for each in project["optional-dependencies"]["server"]}
    assert wanted <= set(pinned)
    assert not project["dependencies"], "the client needs nothing but the standard library"


def test_the_pythons_that_are_declared_reach_from_the_oldest_to_that_of_the_images() -> None:
    (newest,) = re.findall(r"(?m)^ARG BASE=\S+/python:3\.(\d+)-", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    for folder in SHIPPED:
        project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        oldest = int(project["requires-python"].removeprefix(">=3."))
        declared = [each for each in project["classifiers"] if each.startswith("Programming Language :: Python :: 3.")]
        assert declared == [
            f"Programming Language :: Python :: 3.{minor}" for minor in range(oldest, int(newest) + 1)
        ], folder


def test_another_python_of_make_has_an_environment_of_its_own() -> None:
    outside = {key: value for key, value in os.environ.items() if key not in ("PYTHON", "VENV", "MAKEFLAGS", "MFLAGS")}
    for more, folder in ([], ".venv"), ([f"PYTHON={sys.executable}"], f".venv-3.{sys.version_info[1]}"):
        command = ["make", "--dry-run", "--always-make", "setup", *more]
        done = subprocess.run(command, cwd=ROOT, env=outside, capture_output=True, text=True, check=True)
        assert f"touch {folder}/.broker\n" in done.stdout


def test_a_make_target_calls_something_that_exists() -> None:
    lines = (ROOT / "Makefile").read_text(encoding="utf-8").splitlines()
    # What `make clean` removes need not be there.
    recipes = "\n".join(line for line in lines if line.startswith("\t") and not line.startswith("\trm "))
    for path in re.findall(r"(?:\s|@)((?:tests|broker|requirements)/[\w./-]+)", recipes):
        if not path.endswith(("/", ".")) and "%" not in path:
            assert (ROOT / path).exists(), f"Makefile calls {path}"


def test_a_recipe_is_one_line_that_calls_a_script() -> None:
    recipe = 0
    for line in (ROOT / "Makefile").read_text(encoding="utf-8").splitlines():
        recipe = recipe + 1 if line.startswith("\t") else 0
        assert recipe <= 2, f"a recipe longer than two lines belongs into a script: {line.strip()}"
