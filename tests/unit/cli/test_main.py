from __future__ import annotations

import importlib
import resource
import subprocess
import sys

import pytest

from gantry.cli import main as front

BLINK_S = 0.150


def processor_s() -> float:
    """What the processes that ended have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help_names_every_command_and_answers_in_a_blink() -> None:
    times = []
    for _ in range(5):
        begun = processor_s()
        done = subprocess.run(
            [sys.executable, "-m", "gantry.cli.main", "--help"], capture_output=True, text=True, check=True
        )
        times.append(processor_s() - begun)
        for command in front.COMMANDS:
            assert f"\n    {command}" in done.stdout
    # Processor time, and the best of five: what the program needs, not what the machine was busy with.
    assert min(times) < BLINK_S


def test_help_loads_no_command() -> None:
    code = (
        "import sys; from gantry.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print([m for m in sys.modules if m.startswith('gantry.') and not m.startswith('gantry.cli')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("words", [["--help"], ["resend", "--help"]])
def test_help_of_the_guarantee_loads_no_database_no_client_and_no_loop(words: list[str]) -> None:
    code = (
        "import sys; from gantry.cli.main import main\n"
        f"try: main({['guarantee', *words]!r})\nexcept SystemExit: pass\n"
        "print(*(m for m in sys.modules if not m.startswith('gantry.cli')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = {*done.stdout.splitlines()[-1].split()}
    assert {name for name in found if name.startswith("gantry.")} == {"gantry.errors"}
    assert not found & {"asyncio", "ssl", "sqlite3", "psycopg", "pymysql", "aiohttp", "prometheus_client"}


@pytest.mark.parametrize("command", sorted(front.COMMANDS))
def test_every_command_has_a_module_and_a_help_of_its_own(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module(f"gantry.cli.{command}")
    assert callable(module.run)
    with pytest.raises(SystemExit) as ended:
        front.main([command, "--help"])
    assert ended.value.code == 0
    assert f"gantry {command}" in capsys.readouterr().out


def test_the_version_is_the_distributions(capsys: pytest.CaptureFixture[str]) -> None:
    assert front.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("gantry 0.")


def test_an_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        front.main(["prodcue"])
    assert ended.value.code == 2
    assert "prodcue" in capsys.readouterr().err


def without_packages(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The program where only the client was installed."""
    code = (
        "import sys\n"
        "for name in ('aiohttp', 'prometheus_client', 'uvloop', 'yaml'): sys.modules[name] = None\n"
        "from gantry.cli.main import main\n"
        f"sys.exit(main({list(arguments)!r}))"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    "arguments",
    [["standalone", "--data", "x"], ["broker"], ["nameserver", "--nameserver-port=0", "--http-port=0"]],
    ids=lambda arguments: arguments[0],
)
def test_a_server_without_the_server_s_packages_says_what_to_install(arguments: list[str]) -> None:
    done = without_packages(*arguments)
    assert done.returncode == 2
    assert "which is not installed; pip install 'gantrymq[server]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["produce", "consume", "topic", "group", "tx", "cluster", "store"])
def test_a_client_s_command_needs_no_package(command: str) -> None:
    done = without_packages(command, "--help")
    assert done.returncode == 0, done.stderr
