"""Checkpoints that Python cannot open: the sink goes without the file that ties it to its checkpoint."""

from __future__ import annotations

import pytest

from pyspark_gantrymq import sinkhome, sinkoptions


@pytest.mark.parametrize("checkpoint", ["s3a://bucket/ckpt", "dbfs:/ckpt", "nonsense://x/y"])
def test_a_checkpoint_that_python_cannot_open_needs_a_sink_id_and_is_not_tied_to_it(
    checkpoint: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sinkhome.BlockingSinks, "home_of", lambda *_: "broker-a")
    given = {"gantrymq.namesrv": "h:1", "topic": "t", "mode": "transactional", "checkpointLocation": checkpoint}
    with pytest.raises(ValueError, match=r"cannot be opened from Python: .*; give option sinkId"):
        sinkhome.sink_of(sinkoptions.read(given), is_stream=True)
    one = sinkhome.sink_of(sinkoptions.read(given | {"sinkId": "s"}), is_stream=True)
    assert (one.sink, one.home) == ("s", "broker-a") and "nothing ties it to sink s" in caplog.text
