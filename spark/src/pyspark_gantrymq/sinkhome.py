"""Finding the home group of a transactional sink, and checking that its checkpoint belongs to it.

The home group decides about the sink's batches, so all drivers that ever use its name have to use the same group.  The
first one chooses it by the name, out of the groups that exist then.  Later ones find it in the groups' tables, and in
`gantrymq-sink.json` beside Spark's own files in the checkpoint.  That file also ties the checkpoint to the sink: with
another `sinkId` the last batch would be written a second time, so that is refused.

This runs in a Python process of the driver, which has no access to Hadoop's file systems.  A checkpoint that pyarrow
cannot open has no such file; then the option `sinkId` is the sink's name, and the groups' tables have its home.
"""

from __future__ import annotations

import json
import logging
from hashlib import sha256
from uuid import uuid4

from gantry.client.blockingsinks import BlockingSinks, NotAGantryError
from gantry.client.requests.sink_requests import SinkBatch
from gantry.transaction.batches import is_sink
from pyspark_gantrymq.sinkoptions import SinkOptions

log = logging.getLogger(__name__)

PIN = "gantrymq-sink.json"
_PIN_BYTES_MAX = 1 << 16


def sink_of(options: SinkOptions, is_stream: bool) -> SinkBatch:
    """Return the sink, with its home, and for `df.write` its batch; ValueError saying why it cannot be transactional.

    A checkpoint on a file system that Python cannot open (s3a, dbfs) needs a sinkId, and is not tied to its sink.
    """
    if is_stream and not options.sink and not options.checkpoint:
        raise ValueError("mode=transactional wants option sinkId, or checkpointLocation to derive it from")
    if is_stream and options.batch is not None:
        raise ValueError("option batchId is for df.write; a stream has its own")
    if not is_stream and bool(options.sink) != (options.batch is not None):
        raise ValueError("sinkId and batchId go together (gantrymq_transaction gives both); or leave out both")
    with BlockingSinks(options.namesrv, options.commit_timeout_s) as sinks:
        try:
            if not is_stream:
                passing = f"batch-{uuid4().hex}"
                name = options.sink or passing
                is_passing = name == passing
                home = sinks.home_of(name, is_new=is_passing)
                return SinkBatch(name, options.batch or 0, home, is_passing, options.owner)
            checkpoint = options.checkpoint if _is_open(options) else ""
            pinned = _read(checkpoint) if checkpoint else None
            name, home = _named(options, pinned)
            home = home or sinks.home_of(name)
        except NotAGantryError as error:
            raise ValueError(
                "mode=transactional needs GantryMQ on every broker: Apache RocketMQ delivers a half again that is "
                "committed twice and drops one that is committed late; use mode=at-least-once"
            ) from error
    if checkpoint and pinned is None:
        _write(checkpoint, {"v": 1, "sinkId": name, "home": home})
    return SinkBatch(name, -1, home)


def _is_open(options: SinkOptions) -> bool:
    """Return whether there is a checkpoint that can be tied to the sink; ValueError where there has to be one."""
    if not options.checkpoint:
        return False
    try:
        _files(options.checkpoint)
    except ValueError as error:
        if not options.sink:
            raise ValueError(f"{error}; give option sinkId, a name that no other query uses") from error
        log.warning("%s; nothing ties it to sink %s: give no other query this sinkId", error, options.sink)
        return False
    return True


def _named(options: SinkOptions, pinned: dict[str, object] | None) -> tuple[str, str]:
    if pinned is None:
        derived = "checkpoint-" + sha256(options.checkpoint.rstrip("/").encode()).hexdigest()[:32]
        return options.sink or derived, ""
    name, home = str(pinned.get("sinkId")), str(pinned.get("home"))
    if not is_sink(name) or not home:
        raise ValueError(f"{options.checkpoint}/{PIN} is damaged; restore it, it says which sink wrote here")
    if options.sink and options.sink != name:
        raise ValueError(
            f"the checkpoint {options.checkpoint} belongs to sink {name}, and sinkId is {options.sink}: its last batch "
            "would be written twice; use the old sinkId, or a new checkpoint"
        )
    return name, home


def _read(checkpoint: str) -> dict[str, object] | None:
    files, path = _files(checkpoint)
    if not files.get_file_info(path).size:
        return None
    with files.open_input_stream(path) as file:
        try:
            found = json.loads(file.read(_PIN_BYTES_MAX))
        except ValueError as error:
            raise ValueError(f"{checkpoint}/{PIN} is damaged: {error}") from error
    return found if isinstance(found, dict) else {}


def _write(checkpoint: str, pin: dict[str, object]) -> None:
    """Write the file; two drivers that begin at once write the same content."""
    files, path = _files(checkpoint)
    files.create_dir(path.rpartition("/")[0], recursive=True)
    unfinished = f"{path}.{uuid4().hex}"
    with files.open_output_stream(unfinished) as file:
        file.write(json.dumps(pin).encode())
    files.move(unfinished, path)


def _files(checkpoint: str):  # type: ignore[no-untyped-def]  # pyarrow has no types
    from pyarrow import fs

    try:
        files, path = fs.FileSystem.from_uri(checkpoint) if ":" in checkpoint else (fs.LocalFileSystem(), checkpoint)
    except (OSError, ValueError) as error:
        raise ValueError(f"the checkpoint {checkpoint} cannot be opened from Python: {error}") from error
    return files, f"{path.rstrip('/')}/{PIN}"
