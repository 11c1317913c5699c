"""A pair of real processes of two versions: the previous one's code, from this repository's history, and this tree.

In a rolling upgrade slaves go first, then the master; then all of it is taken back.  What was acknowledged is there, at
each step and on both, and the logs are equal byte for byte.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from testkit.archives import unpack
from testkit.pairplay import Pair, until
from testkit.rawclient import RawClient
from testkit.sources import ROOT

pytestmark = pytest.mark.slow

PREVIOUS = "81808119dd55cd4f7e43fa81b8acd558a8b09e50"  # whose documents and frames are in golden/previous
OK, TOPIC = 0, "orders"


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The previous version's code."""
    done = subprocess.run(["git", "archive", PREVIOUS, "broker/src"], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"missing the history of this repository up to {PREVIOUS[:7]}: git fetch --unshallow")
    folder = tmp_path_factory.mktemp("previous")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        unpack(archive, folder)
    source = folder / "broker" / "src"
    look = [sys.executable, "-c", "import gantry; print(*gantry.__path__)"]
    paths = os.environ | {"PYTHONPATH": str(source)}
    found = subprocess.run(look, env=paths, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(source / "gantry"), "the previous version is not what would run"
    return source


class MixedPair(Pair):
    """A pair whose next member is of the previous version while `is_former`."""

    def __init__(self, folder: Path, former: Path) -> None:
        self.is_former = False
        self._former = former
        super().__init__(folder)

    def _command(self, name: str, *more: str) -> list[str]:
        command = super()._command(name, *more)
        # Its compiled leaves are not there, and this tree's need not fit.
        return ["env", f"PYTHONPATH={self._former}", "GANTRY_PURE=1", *command] if self.is_former else command

    def exchange(self, broker_id: int, is_former: bool) -> None:
        """Stop a member in order; its next process is of that version."""
        assert self.members[broker_id].stop() == 0
        self.is_former = is_former
        self.start(broker_id)


def bodies(client: RawClient) -> list[bytes]:
    return [body for _, body in client.read(TOPIC, 0)]


def test_a_pair_is_upgraded_and_taken_back_member_by_member(tmp_path: Path, former: Path) -> None:
    with MixedPair(tmp_path, former) as pair:
        pair.is_former = True
        pair.start(0)
        pair.start(1)
        acknowledged: list[bytes] = []
        steps = [None, (1, False), (0, False), (1, True), (0, True)]
        for number, step in enumerate(steps):
            if step is not None:
                pair.exchange(*step)
            pair.until_writable(TOPIC)
            with pair.client(0) as client:
                for each in range(100):
                    body = b"%d-%05d" % (number, each)
                    client.send(TOPIC, 0, body.ljust(300, b"."))
                    reply = client.reply()
                    assert reply is not None and reply.code == OK, f"step {step}: {reply}"
                    acknowledged.append(body.ljust(300, b"."))
            pair.until_equal(1)
            for member in (0, 1):

                def shows(member: int = member) -> bool:
                    with pair.client(member) as client:
                        return [one for one in bodies(client) if one[1:2] == b"-"] == acknowledged

                until(shows, f"member {member} shows what was acknowledged, after {step}")
