"""Spark sessions as the tests want them: small, on this machine, and without a trace in the working folder.

Spark's JVM looks for data sources with the Python of PYSPARK_PYTHON (else the `python3` of the PATH), whatever
`spark.pyspark.python` says; so the variable is set before there is a JVM.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from testkit.marked import JVM

CORES = 2
ATTEMPTS = 3


def start(folder: Path, cores: int = CORES, more: Mapping[str, str] | None = None) -> SparkSession:
    """A session whose tasks are tried ATTEMPTS times, as on a cluster; plain `local[2]` never tries again."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{cores},{ATTEMPTS}]").appName("gantrymq-tests")
    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": JVM,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder / "local"),
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    for key, value in (settings | dict(more or {})).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
