"""The entrypoint of the image `spark`, as Spark on Kubernetes calls it; what it becomes says its words."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from testkit.patience import HANG_S
from testkit.sources import ROOT

SAYS = '#!/bin/sh\nfor each in "$(basename "$0")" "$@"; do echo "$each"; done\n'
EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1g",
    "SPARK_APPLICATION_ID": "spark-7",
    "SPARK_EXECUTOR_POD_IP": "10.1.2.3",
    "SPARK_EXECUTOR_POD_NAME": "exec-3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """tini becomes what it is given; java and spark-submit say how they were called."""
    (tmp_path / "bin").mkdir()
    for name, text in {"tini": '#!/bin/sh\nshift 2\nexec "$@"\n', "java": SAYS, "spark-submit": SAYS}.items():
        program = tmp_path / "bin" / name
        program.write_text(text)
        program.chmod(0o755)
    return tmp_path


def called(home: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {"PATH": f"{home}/bin:/usr/bin:/bin", "SPARK_HOME": str(home), **environment}
    command = [str(ROOT / "spark/docker/entrypoint"), *words]
    return subprocess.run(command, env=given, capture_output=True, text=True, check=False, timeout=HANG_S)


def after(lines: list[str], flag: str) -> str:
    return lines[lines.index(flag) + 1]


def test_a_driver_is_a_spark_submit_on_its_pods_address(home: Path) -> None:
    given = ("--class", "org.apache.spark.deploy.PythonRunner", "local:///jobs/archive.py", "--to", "a b")
    said = called(home, "driver", *given, SPARK_DRIVER_BIND_ADDRESS="10.1.0.9").stdout.splitlines()
    assert said[0] == "spark-submit" and after(said, "--deploy-mode") == "client"
    assert "spark.driver.bindAddress=10.1.0.9" in said and "spark.executorEnv.SPARK_DRIVER_POD_IP=10.1.0.9" in said
    assert tuple(said[-len(given) :]) == given


def test_an_executor_is_a_jvm_with_the_options_and_memory_of_its_environment(home: Path) -> None:
    options = {"SPARK_JAVA_OPT_0": "-Da=b c", "SPARK_JAVA_OPT_1": "-Dd=*", "SPARK_JAVA_OPT_3": "-Dnot=this"}
    more = {"SPARK_CONF_DIR": "/conf", "SPARK_CLASSPATH": "/more/*"}
    said = called(home, "executor", **EXECUTOR, **options, **more).stdout.splitlines()
    assert said[:5] == ["java", "-Da=b c", "-Dd=*", "-Xms1g", "-Xmx1g"]
    assert after(said, "-cp") == f"/conf:{home}/jars/*:/more/*"
    wanted = {"--driver-url": EXECUTOR["SPARK_DRIVER_URL"], "--executor-id": "3", "--cores": "2", "--app-id": "spark-7"}
    wanted |= {"--hostname": "10.1.2.3", "--resourceProfileId": "0", "--podName": "exec-3"}
    assert {flag: after(said, flag) for flag in wanted} == wanted


def test_an_executor_without_options_of_java_is_started_too(home: Path) -> None:
    assert called(home, "executor", **EXECUTOR).stdout.splitlines()[:2] == ["java", "-Xms1g"]


@pytest.mark.parametrize(
    ("role", "missing"), [("driver", "SPARK_DRIVER_BIND_ADDRESS"), ("executor", "SPARK_APPLICATION_ID")]
)
def test_a_role_without_what_spark_sets_is_refused_by_the_name_of_what_is_missing(
    home: Path, role: str, missing: str
) -> None:
    done = called(home, role, **{name: value for name, value in EXECUTOR.items() if name != missing})
    assert done.returncode == 64 and missing in done.stderr and "Spark on Kubernetes sets it" in done.stderr


def test_an_assigned_user_id_has_a_name_for_hadoop(home: Path) -> None:
    """Shown with a real JVM by hand: without it UnixSystem().getUsername() is null, and Hadoop's login ends."""
    for name, text in {"getent": "exit 2", "id": 'test "$1" = -u && echo 1000650000 || echo 0'}.items():
        (home / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (home / "bin" / name).chmod(0o755)
    said = called(home, "sh", "-c", 'tail -1 "$NSS_WRAPPER_PASSWD"; echo "$LD_PRELOAD"; rm "$NSS_WRAPPER_PASSWD"')
    assert said.stdout.splitlines() == ["assigned:x:1000650000:0::/tmp:/bin/false", "libnss_wrapper.so"]
    (home / "bin" / "getent").write_text("#!/bin/sh\nexit 0\n")
    assert called(home, "sh", "-c", "echo ${LD_PRELOAD:-none}").stdout == "none\n"


def test_anything_else_is_a_command(home: Path) -> None:
    assert called(home, "java", "-version").stdout.splitlines() == ["java", "-version"]
