"""A program that only computes, with a limit that a busy machine does not shorten."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Mapping, Sequence

_CPU_S = 280


def run(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Return how it ended and what it said; it is killed after 280 s of CPU time, whatever the clock says."""
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        resource.prlimit(process.pid, resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
        try:
            out, error = process.communicate()
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, error)
