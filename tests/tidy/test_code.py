"""The house rules that a reader of one file can check: sizes, names, docstrings, calls."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

from testkit.sources import ROOT, SOURCE, called_names, module_of, nodes_of, python_files, tree_of

LINES_MAX = 400
CONSTRUCTOR_MAX = 7
SHIPPED = python_files("broker/src/gantry")
OURS = [*SHIPPED, *python_files("broker/demo", "spark/src")]

BANNED_NAMES = re.compile(r"(?i)^(utils?|common|helpers?|misc|base|managers?|impl|processor)$")
BANNED_WORDS = re.compile(r"(Manager|Helper|Util|Utils|Impl)$|^(Abstract|Base|Default)[A-Z]")
# Fixed by RocketMQ's formats: the constructor takes the fields of a frame or of a record, made once per message.
VALUES_OF_THE_WIRE = {
    ("broker/src/gantry/leaves/requests.py", "Command"),
    ("broker/src/gantry/leaves/requests.py", "Send"),
    ("broker/src/gantry/leaves/requests.py", "Pull"),
    ("broker/src/gantry/leaves/requests.py", "End"),
    ("broker/src/gantry/leaves/stored.py", "Entry"),
    ("broker/src/gantry/leaves/stored.py", "Record"),
}

# Spark looks for a data source by this name.
NAMES_OF_OTHERS = {("spark/src/pyspark_gantrymq/source.py", "DefaultSource")}

# They run on threads of their own: in a command, in a task of Spark, in a program without asyncio.
SYNCHRONOUS = {"gantry.client.blockingsinks", "gantry.mns.blockingconnection", "pyspark_gantrymq.sinksending"}
# call -> (what to use instead, modules that may)
BANNED_CALLS = {
    "time.time": ("a Clock", {"gantry.clock"}),
    "time.time_ns": ("a Clock", {"gantry.clock"}),
    "time.sleep": ("an event", {"gantry.cli", "gantry.client.blocking", "gantry.client.blockingpop", *SYNCHRONOUS}),
    "datetime.now": ("a Clock", set()),
    "datetime.datetime.now": ("a Clock", set()),
    "datetime.datetime.utcnow": ("a Clock", set()),
    "datetime.date.today": ("a Clock", set()),
    "print": ("a logger", {"gantry.cli"}),
    "eval": ("nothing", set()),
    "exec": ("nothing", set()),
    "os.system": ("nothing", set()),
    "mmap.flush": ("os.fdatasync; mmap.flush holds the interpreter", set()),
}
RANDOM_THAT_MAY = {"random.Random", "random.SystemRandom"}
ALL = {"Exception", "BaseException"}
GUARDS_OF_EVERYTHING = {
    "broker/src/gantry/broker/requests/router.py",  # one request
    "broker/src/gantry/transport/gathered.py",  # one connection, as the loop does it for its own sockets
    "broker/src/gantry/guarantee/keys.py",  # a client of the user's: whatever it raises, the database decides
    "broker/src/gantry/guarantee/sending.py",  # a driver of the user's: a resend finds what was not stored
    "broker/src/gantry/guarantee/people.py",  # one offer to a channel
    "broker/src/gantry/guarantee/resendservice.py",  # one pass, with errors of any driver
    "broker/src/gantry/guarantee/threads.py",  # one call, whose error is raised by the one that waits
    "operator/src/gantry_operator/queue.py",  # one object's pass
    "operator/src/gantry_operator/watching.py",  # one group's failover loop
}


def test_a_file_fits_a_head() -> None:
    lines = {path: (ROOT / path).read_text(encoding="utf-8").count("\n") for path in python_files()}
    too_long = {path: count for path, count in lines.items() if count > LINES_MAX}
    assert not too_long, f"more than {LINES_MAX} lines: {too_long}"


def test_a_module_begins_with_its_theory() -> None:
    docstrings = {path: ast.get_docstring(tree_of(path)) or "" for path in OURS}
    missing = [path for path, docstring in docstrings.items() if not docstring]
    assert not missing, f"no docstring: {missing}"
    labels = [path for path, text in docstrings.items() if len(text) < 50 and not path.endswith("__init__.py")]
    assert not labels, f"the docstring is a label, not a theory: {labels}"


# Which twin of the leaves runs; the client's public names, each imported when it is first used.
WITH_NAMES = {"broker/src/gantry/leaves/__init__.py", "broker/src/gantry/client/__init__.py"}


def test_a_package_says_what_it_is_and_nothing_more() -> None:
    for path in SHIPPED:
        if path.endswith("__init__.py") and path not in WITH_NAMES:
            body = [node for node in tree_of(path).body if not isinstance(node, ast.Expr)]
            assert not body, f"{path} has code; import the module that you mean"


def test_a_constructor_takes_what_it_uses() -> None:
    for path in OURS:
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef) and (path, node.name) not in VALUES_OF_THE_WIRE:
                for item in node.body:
                    if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                        count = len(item.args.args) + len(item.args.kwonlyargs) + len(item.args.posonlyargs) - 1
                        assert count <= CONSTRUCTOR_MAX, f"{path}: {node.name} takes {count} arguments"


def test_names_say_what_a_thing_is() -> None:
    for path in OURS:
        for part in path.removesuffix(".py").split("/"):
            assert not BANNED_NAMES.match(part), f"{path}: {part}"
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                fixed = (path, node.name) in NAMES_OF_OTHERS
                assert fixed or not BANNED_WORDS.search(node.name), f"{path}: class {node.name}"


def test_nobody_calls_what_the_house_has_a_better_way_for() -> None:
    for path in SHIPPED:
        module = module_of(path)
        for line, name in called_names(path):
            better, allowed = BANNED_CALLS.get(name, ("", {module}))
            may = any(module == each or module.startswith(f"{each}.") for each in allowed)
            assert may, f"{path}:{line}: {name}; use {better}"


def test_chance_comes_from_a_generator_that_a_test_can_seed() -> None:
    for path in SHIPPED:
        for line, name in called_names(path):
            assert not name.startswith("random.") or name in RANDOM_THAT_MAY, f"{path}:{line}: {name}"


def test_only_a_request_a_pass_and_a_loop_are_guarded_against_everything() -> None:
    for path in SHIPPED:
        for node in nodes_of(path):
            if isinstance(node, ast.ExceptHandler) and path not in GUARDS_OF_EVERYTHING:
                caught = {item.id for item in ast.walk(node.type) if isinstance(item, ast.Name)} if node.type else ALL
                reraises = any(isinstance(item, ast.Raise) for item in ast.walk(node))
                assert not caught & ALL or reraises, f"{path}:{node.lineno}"


def test_what_is_left_to_do_has_an_issue() -> None:
    for path in python_files():
        if path.startswith("tests/tidy/"):
            continue
        for number, line in enumerate((ROOT / path).read_text(encoding="utf-8").splitlines(), 1):
            assert not re.search(r"#.*\b(TODO(?! *\(?#\d)|FIXME|XXX|HACK)\b", line), f"{path}:{number}"


def test_tests_never_sleep_and_mock_nothing() -> None:
    for path in python_files("tests"):
        for line, name in called_names(path):
            # Other processes send no events: asking them again needs a pause.
            sleeps = name == "time.sleep" and not path.startswith(("tests/bench/", "tests/interop/", "tests/crash/"))
            assert not sleeps, f"{path}:{line}: wait for an event"
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom):
                assert node.module not in ("unittest", "unittest.mock"), f"{path}: a fake in testkit instead"


def test_test_folders_are_no_packages() -> None:
    assert not [path for path in python_files("tests") if path.endswith("__init__.py")]


def test_the_program_refuses_to_start_without_its_asserts() -> None:
    command = [sys.executable, "-O", "-m", "gantry.cli.main", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=SOURCE, check=False)
    assert done.returncode == 2
    assert "assert" in done.stderr
