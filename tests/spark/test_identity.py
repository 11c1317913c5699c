"""A checkpoint knows whose offsets it has: a topic that was made again, and another cluster, are noticed."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from pyspark_gantrymq import pulls
from pyspark_gantrymq.offsets import Queue, Stretch
from pyspark_gantrymq.options import parse
from testkit.process import GantryProcess
from testkit.sources import ROOT
from testkit.sparkstream import delete_topic, ids, make_topic, send, work_off

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def last_offset(folder: Path) -> dict[str, object]:
    logged = folder / "ckpt" / "offsets"
    newest = max(int(one.name) for one in logged.iterdir() if one.name.isdigit())
    found: dict[str, object] = json.loads((logged / str(newest)).read_text().splitlines()[2])
    return found


def test_a_topic_that_was_made_again_and_outgrew_the_checkpoint_is_noticed(
    spark: SparkSession, nameserver: str, topic: str, tmp_path: Path
) -> None:
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    make_topic(nameserver, topic)
    former = send(nameserver, topic, 10)
    assert sum(work_off(spark, nameserver, tmp_path, **options)) == 10
    delete_topic(nameserver, topic)
    make_topic(nameserver, topic)
    later = send(nameserver, topic, 30)
    with pytest.raises(PySparkException, match=r"was deleted and made again on .*; option failOnDataLoss=false"):
        work_off(spark, nameserver, tmp_path, **options)
    assert sum(work_off(spark, nameserver, tmp_path, **options, failOnDataLoss="false")) == 30
    assert ids(spark, tmp_path) == sorted(former + later)
    later += send(nameserver, topic, 5)
    assert sum(work_off(spark, nameserver, tmp_path, **options)) == 5


@pytest.mark.slow
def test_a_batch_is_not_repeated_with_messages_of_a_topic_that_was_made_again(
    spark: SparkSession, nameserver: str, topic: str, tmp_path: Path
) -> None:
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    make_topic(nameserver, topic)
    send(nameserver, topic, 10)
    assert sum(work_off(spark, nameserver, tmp_path, **options)) == 10
    # As if the driver had been killed before the batch was written: it is repeated, from the offsets that were logged.
    shutil.rmtree(tmp_path / "ckpt/commits")
    shutil.rmtree(tmp_path / "out")
    delete_topic(nameserver, topic)
    make_topic(nameserver, topic)
    later = send(nameserver, topic, 30)
    with pytest.raises(PySparkException, match=r"made again .*; \d+ messages of the former were to be read"):
        work_off(spark, nameserver, tmp_path, **options)
    assert sum(work_off(spark, nameserver, tmp_path, **options, failOnDataLoss="false")) == 30
    assert ids(spark, tmp_path) == sorted(later)


@pytest.mark.slow
def test_a_batch_is_repeated_without_the_messages_of_a_topic_that_was_deleted(
    spark: SparkSession, nameserver: str, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stays, goes = f"{topic}-stays", f"{topic}-goes"
    options = {"subscribePattern": f"{topic}-.*", "startingOffsets": "earliest", "maxOutage": "1s"}
    options["fetchOffset.numRetries"] = "0"
    make_topic(nameserver, stays)
    make_topic(nameserver, goes)
    sent = {each: send(nameserver, each, 10) for each in (stays, goes)}
    assert sum(work_off(spark, nameserver, tmp_path, **options)) == 20
    shutil.rmtree(tmp_path / "ckpt/commits")
    shutil.rmtree(tmp_path / "out")
    delete_topic(nameserver, goes)
    with pytest.raises(PySparkException, match="did not come within 1 s"):
        work_off(spark, nameserver, tmp_path, **options)
    assert sum(work_off(spark, nameserver, tmp_path, **options, failOnDataLoss="false")) == 10
    assert ids(spark, tmp_path) == sorted(sent[stays])
    given = {"gantrymq.namesrv": nameserver, **options, "failOnDataLoss": "false"}
    task = pulls.Task([Stretch(Queue(goes, "broker-a", number), 0, 5) for number in range(2)])
    with caplog.at_level(logging.WARNING):
        assert list(pulls.read(parse(given, is_stream=True), ["body"], task)) == []
    assert caplog.messages == [f"topic {goes} is not there any more: 10 messages were to be read and are lost"]


@pytest.mark.slow
@pytest.mark.parametrize("strict", ["true", "false"])
def test_another_cluster_under_the_same_checkpoint_fails_and_a_restarted_one_does_not(
    strict: str, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    python = str(ROOT / ".venv" / "bin" / "python")
    options = {"subscribe": topic, "startingOffsets": "earliest", "failOnDataLoss": strict}
    for _ in range(2):
        with GantryProcess(tmp_path / "ours", python=python) as ours:
            nameserver = "{}:{}".format(*ours.addresses["nameserver"])
            send(nameserver, topic, 10)
            assert sum(work_off(spark, nameserver, tmp_path, **options)) == 10
            assert ours.stop() == 0
    before = last_offset(tmp_path)
    with GantryProcess(tmp_path / "theirs", python=python) as theirs:
        nameserver = "{}:{}".format(*theirs.addresses["nameserver"])
        send(nameserver, topic, 50)
        with pytest.raises(PySparkException, match=r"the checkpoint is of cluster .* leads to cluster .*; a new"):
            work_off(spark, nameserver, tmp_path, **options)
    assert last_offset(tmp_path) == before


@pytest.mark.slow
def test_a_checkpoint_of_the_first_releases_goes_on_and_learns_whose_it_is(
    spark: SparkSession, nameserver: str, topic: str, tmp_path: Path
) -> None:
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    sent = send(nameserver, topic, 10)
    work_off(spark, nameserver, tmp_path, **options)
    known = last_offset(tmp_path)
    assert known["cluster"] and known["topics"]
    for path in [*(tmp_path / "ckpt/offsets").iterdir()]:
        if path.name.isdigit():
            head, rows, offset = path.read_text().splitlines()
            old = {name: each for name, each in json.loads(offset).items() if name in ("from", "q", "v")}
            path.write_text("\n".join([head, rows, json.dumps(old)]))
        else:
            path.unlink()  # a checksum
    sent += send(nameserver, topic, 10)
    assert sum(work_off(spark, nameserver, tmp_path, **options)) == 10
    learnt = last_offset(tmp_path)
    assert (learnt["cluster"], learnt["topics"]) == (known["cluster"], known["topics"])
    assert ids(spark, tmp_path) == sorted(sent)
