"""Store folders exchanged with Apache's broker: anyone who opens one finds everything the other acknowledged.

One play for each of Apache's versions, a chain over one folder:

    Apache fills two topics and is stopped       GantryMQ opens, reads all back, adds, is killed by SIGKILL
    Apache opens, reads all back, adds, is killed    GantryMQ opens, reads all back, adds, is stopped
    Apache opens and reads all back

"All" is the ledger of what was acknowledged: by queue offset (each queue is 0..max-1 without a gap, so offsets go on
where the other broker stopped), by key, by offset id, by unique id; and the consumer offsets of two groups.  The ids
hold the broker's address, so all of them listen on the same port.  A killed broker keeps what it acknowledged because
the page cache outlives the process; power cuts are the crash level's business.
"""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from interop import servers
from interop.clients import CLIENTS
from interop.processes import Driver

TOPICS = ("Orders", "Payments")
GROUPS = ("billing", "audit")


def expected_offsets(base: int, group: str) -> dict[str, int]:
    return {str(queue): base + len(group) + queue for queue in range(4)}


def saved_offsets(text: str, topic: str, group: str) -> dict[str, int]:
    """Out of consumerOffset.json as either broker writes it: integer keys, quoted or not."""
    table = re.search(rf'"{topic}@{group}"\s*:\s*\{{([^}}]*)\}}', text)
    if table is None:
        return {}
    return {queue: int(offset) for queue, offset in re.findall(r'"?(\d+)"?\s*:\s*(\d+)', table[1])}


@dataclass
class Play:
    """The folder that goes round, the ledger, and how much one turn adds to each topic."""

    version: str
    home: Path
    counts: tuple[int, ...]  # messages that each turn adds to each topic
    every: tuple[int, ...]  # at each check: of how many messages one is looked up by key and ids
    name_server: str = ""
    broker: str = ""
    filled: int = 0
    open: list[servers.Server] = field(default_factory=list)
    client: Driver | None = None

    @property
    def ledger(self) -> str:
        return str(self.home / "ledger")

    def start(self, kind: str) -> servers.Server:
        server = servers.make(kind, self.home / kind, self.home / "data", {"brokerName": "broker-a"})
        if self.broker:  # the ids of messages hold it, and the client knows only this name server
            server.name_server, server.broker = self.name_server, self.broker
        self.open.append(server)  # first: a start that fails half-way leaves processes to close
        server.start()
        self.name_server, self.broker = server.name_server, server.broker
        return server

    def end(self, server: servers.Server, how: str) -> None:
        getattr(server, how)()
        self.open.remove(server)
        server.close()

    def driver(self) -> Driver:
        if self.client is None:
            self.client = CLIENTS["java-4.9.7"].start(self.home / "client", self.name_server)
        return self.client

    def fill(self, turn: int) -> None:
        count = self.counts[turn]
        for topic in TOPICS:
            fields = {"topic": topic, "start": self.filled, "count": count, "ledger": self.ledger}
            answer = self.driver().call("fill", 120.0, group="filler", **fields)
            assert answer["failures"] == []
            assert answer["acknowledged"] == count
        self.filled += count

    def commit(self, base: int) -> None:
        for group in GROUPS:
            self.driver().call("pull", group=group, topic=TOPICS[0], offset=1 << 40)
            self.driver().call("commit", group=group, topic=TOPICS[0], base=base + len(group))

    def wait_until_saved(self, base: int) -> None:
        """Consumer offsets reach the disk on a timer; a kill before that may lose them, with either broker."""
        path = self.home / "data" / "config" / "consumerOffset.json"
        deadline = time.monotonic() + 60.0
        while True:
            text = path.read_text() if path.exists() else ""
            found = {group: saved_offsets(text, TOPICS[0], group) for group in GROUPS}
            if found == {group: expected_offsets(base, group) for group in GROUPS}:
                return
            assert time.monotonic() < deadline, f"{path} says {found}"
            time.sleep(0.05)

    def check(self, base: int) -> None:
        """After turn number `base`: all that was acknowledged so far is there, and nothing else."""
        for topic in TOPICS:
            servers.wait_until_routed(self.name_server, topic)
            answer = self.driver().call(
                "check", 600.0, group="reader", topic=topic, ledger=self.ledger, every=self.every[base]
            )
            assert answer["differences"] == [], f"after turn {base}, {topic}"
            assert answer["ledger"] == answer["pulled"] == self.filled
        for group in GROUPS:
            offsets = self.driver().call("committed", group=group, topic=TOPICS[0])["offsets"]
            assert offsets == expected_offsets(base, group), group


@pytest.fixture
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Play]:
    version, counts, every = request.param
    made = Play(version, tmp_path, counts, every)
    yield made
    if made.client is not None:
        made.client.quit()
    for server in made.open:
        server.close()


def go_round(play: Play, ends: tuple[str, str, str, str]) -> None:
    apache = f"apache-{play.version}"
    for turn, (kind, end) in enumerate(zip((apache, "gantry", apache, "gantry"), ends, strict=True)):
        server = play.start(kind)
        if turn == 0:
            for topic in TOPICS:
                servers.create_topic(server, topic)
        else:
            play.check(base=turn - 1)
        play.fill(turn)
        play.commit(base=turn)
        play.wait_until_saved(base=turn)
        play.end(server, end)
    play.start(apache)
    play.check(base=3)


SMALL = ((600,) * 4, (5,) * 4)
# Apache writes 100,000, then GantryMQ does; the first check on either side looks up every single one.
LARGE = ((50_000, 50_000, 500, 500), (1, 1, 50, 50))


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("every_tool")
@pytest.mark.slow
@pytest.mark.parametrize("play", [("4.9.7", *SMALL), ("5.x", *SMALL)], ids=["4.9.7", "5.x"], indirect=True)
def test_a_folder_goes_round_between_apache_and_gantry(play: Play) -> None:
    go_round(play, ("stop", "kill", "kill", "stop"))


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.usefixtures("every_tool")
@pytest.mark.parametrize("play", [("4.9.7", *LARGE), ("5.x", *LARGE)], ids=["4.9.7", "5.x"], indirect=True)
def test_a_folder_of_200_000_messages_goes_round(play: Play) -> None:
    go_round(play, ("kill", "stop", "stop", "kill"))
