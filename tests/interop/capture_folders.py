"""Records folders that Apache's brokers left behind: `PYTHONPATH=tests python -m interop.capture_folders`.

Each story is played with the real brokers of both versions.  What they leave is kept in tests/golden/folders, as a
`.tar.xz` (the files are nearly all zeros) and a `.json` of what has to be found in it: bodies by topic and queue.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

from interop import prepare, servers
from interop.exchange import Exchange

CAPTURED = prepare.CHECKOUT / "tests" / "golden" / "folders"
SETTINGS: servers.Settings = {
    "maxMessageSize": 1 << 16,
    "mappedFileSizeCommitLog": 512 << 10,
    "mappedFileSizeConsumeQueue": 20 * 64,
    "maxHashSlotNum": 200,
    "maxIndexNum": 800,
}
_NOT_READ = {"rocksdbstore", "compaction"}  # 5.x; the first names the folder of this run
Step = tuple[object, ...]
# The deleted messages are the last of the log: a start of RocketMQ's broker puts them into queues once more.
_FILL: list[Step] = [
    ("send", "U", "plain", 0, 3, 20),
    ("send", "T", "plain", 0, 6, 20),
    ("send", "T", "batch", 3, 4, 20),
    ("commit", "T", 0, 1.0),
]


class Session(NamedTuple):
    """What is done while one broker has the folder."""

    is_java: bool
    steps: list[Step]
    end: str = "stop"


STORIES = {
    "deleted": [Session(False, _FILL), Session(True, [("delete", "T")])],
    "deleted-and-started-again": [Session(False, _FILL), Session(True, [("delete", "T")]), Session(True, [])],
    "deleted-here-and-started-there": [Session(False, [*_FILL, ("delete", "T")]), Session(True, [])],
    "made-again-with-fewer-queues": [Session(False, _FILL), Session(True, [("make_again", "T", 2, 5)])],
    "made-again-with-more-queues": [Session(False, _FILL), Session(True, [("make_again", "T", 6, 5)])],
    "made-again-and-killed": [Session(False, _FILL), Session(True, [("make_again", "T", 2, 5)], "kill")],
    "made-and-deleted-meanwhile": [
        Session(False, [_FILL[0]]),
        Session(True, [*_FILL[1:], ("delete", "T"), ("send", "U", "plain", 1, 2, 20)]),
    ],
}


def play(version: str, name: str, story: list[Session], home: Path) -> None:
    """Play one story and keep what it leaves."""
    java = servers.Apache(version, home / "apache", home / "data", SETTINGS)
    ours = servers.Gantry(home / "gantry", home / "data", SETTINGS)
    exchange = Exchange(home / "data")
    try:
        for number, session in enumerate(story):
            exchange.begin(java if session.is_java else ours)
            exchange.check()
            for what, *how in session.steps:
                getattr(exchange, str(what))(*how)
            for topic_name, topic in exchange.topics.items():
                exchange._check_queues(topic_name, topic)  # all is there before a kill
            exchange.end(session.end, is_java_next=number + 1 < len(story) and story[number + 1].is_java)
    finally:
        exchange.close()
        java.close()
        ours.kill()
    found = {
        name: {queue_id: [exchange.body(placed[at]).decode() for at in sorted(placed)] for queue_id, placed in queues}
        for name, queues in ((name, sorted(topic.placed.items())) for name, topic in exchange.topics.items())
    }
    found = {name: {queue: bodies for queue, bodies in queues.items() if bodies} for name, queues in found.items()}
    kept = CAPTURED / f"{version}-{name}"
    kept.with_name(f"{kept.name}.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    kept.with_name(f"{kept.name}.tar.xz").write_bytes(packed(home / "data"))


def packed(folder: Path) -> bytes:
    """The files of a folder as a .tar.xz that names no user and no time."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:xz", preset=9) as archive:
        for path in sorted(folder.rglob("*")):
            if path.relative_to(folder).parts[0] in _NOT_READ:
                continue
            member = tarfile.TarInfo(str(path.relative_to(folder)))
            if path.is_dir():
                member.type = tarfile.DIRTYPE
                archive.addfile(member)
            else:
                data = path.read_bytes()
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return stream.getvalue()


def main() -> None:
    CAPTURED.mkdir(exist_ok=True)
    for version in sys.argv[1:] or ("4.9.7", "5.x"):
        for name, story in STORIES.items():
            with tempfile.TemporaryDirectory() as home:
                play(version, name, story, Path(home))
            print(version, name, flush=True)


if __name__ == "__main__":
    main()
