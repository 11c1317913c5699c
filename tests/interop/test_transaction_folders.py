"""Open transactions in a folder that Apache's broker and GantryMQ exchange: anyone who opens it goes on.

    Apache stores 100 halves that it settles, 100 that it puts back at its checks, 100 that are just open, and stops
    GantryMQ opens the folder, asks a new producer about the 200 and settles them
    GantryMQ stores 100 it settles, 100 it gives up and arms again (copies, as put back), 100 that are just open, 100 it
    settles behind them, and so much else that it marks its op queue; then it stops, or is killed
    Apache opens the folder, asks about the 200 and settles them

Half of each hundred ends by commit.  The checker would say the opposite of what the settled ones were: the caller
about one of them shows it by a message too many or too few.

Apache's broker is asked to check only when the play is ready for it, because two of its habits would make the outcome a
matter of who is faster, its timer or a producer on a busy machine.  An end that comes after its half was put back
settles the old place and not the copy, which is asked about as if nothing had come (one of the play's halves has just
that done to it).  And what is asked about twice before the first answer is noted is delivered twice.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interop import servers
from interop.clients import CLIENTS
from interop.processes import Driver
from testkit.patience import HANG_S

HALVES, OPS, GIVEN_UP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
TOPIC, GROUP = "Orders", "txOrders"
COUNT = 50
ROUND_S = 4.0
CHECKS_S = 2 * ROUND_S + 1.0  # two rounds of checks
OPS_S = 4.0
BULK_MB = 72  # more than a start is to look through
SEND, UPDATE_CONFIG, MAX_OFFSET, END, PRODUCERS = 10, 25, 30, 37, 204
LIST_TRANSACTIONS, RESUME_CHECK = 24001, 323
# After a crash Apache's 5.5 looks through the ten newest segments and no further, wherever the checkpoint stands, which
# is up to a second behind: what is written in that second has to fit, as it does in segments of the usual 1 GiB.
SEGMENT_BYTES = 16 << 20
SETTINGS = {"brokerName": "broker-a", "transactionCheckMax": 1000, "mappedFileSizeCommitLog": SEGMENT_BYTES}
# Until somebody says otherwise, Apache's broker leaves every half alone: all are younger than that.
QUIET = {"transactionTimeOut": 3_600_000, "transactionCheckInterval": int(ROUND_S * 1000)}
SOON_MS = 1000


def wait_until(holds: Callable[[], object], what: str, within_s: float = HANG_S) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


class Play:
    """One folder, one broker at a time on one port, one producer at a time in one group."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.server: servers.Server | None = None
        self.producer: Driver | None = None
        self.expected: list[str] = []
        self._addresses: tuple[str, str] | None = None
        self._started = 0

    def serve(self, kind: str, **settings: int) -> servers.Server:
        assert self.server is None
        self._started += 1
        home = self.home / f"{self._started}-{kind}"
        self.server = servers.make(kind, home, self.home / "data", {**SETTINGS, **settings})
        if self._addresses is not None:  # ids hold the broker's address
            self.server.name_server, self.server.broker = self._addresses
        self.server.start()
        self._addresses = self.server.name_server, self.server.broker
        return self.server

    def end(self, how: str) -> None:
        if self.producer is not None:
            self.producer.kill()  # it leaves what is open to its successor
            self.producer.wait(5.0)
            self.producer = None
        if self.server is not None:
            getattr(self.server, how)()
            self.server.close()
            self.server = None

    def produce(self, everything: str) -> Driver:
        """A producer whose checker says what each message says, or one thing about all."""
        if self.producer is None:
            assert self._addresses is not None
            self._started += 1
            home = self.home / f"{self._started}-client"
            self.producer = CLIENTS["java-4.9.7"].start(home, self._addresses[0])
        self.producer.call("open", group=GROUP, everything=everything)
        return self.producer

    def send(self, prefix: str, execute: str, answer: str) -> None:
        assert self.producer is not None
        fields = {"kind": "transaction", "topic": TOPIC, "count": COUNT, "execute": execute, "answer": answer}
        answered = self.producer.call("send", HANG_S, group=GROUP, prefix=prefix, **fields)["results"]
        assert isinstance(answered, list)
        assert {result["status"] for result in answered} == {"SEND_OK"}
        is_delivered = execute == "commit" or (execute == "unknown" and answer == "commit")
        if is_delivered:
            self.expected += [f"{prefix}-{number}" for number in range(COUNT)]

    def send_by_hand(self, body: str, answer: str) -> dict[str, str]:
        """A half, as a client sends it; what an end has to say of its place."""
        assert self.server is not None
        given = {"TRAN_MSG": "true", "PGROUP": GROUP, "KEYS": body, "UNIQ_KEY": f"{body:0>32}", "answer": answer}
        properties = "".join(f"{name}\x01{value}\x02" for name, value in given.items())
        ext = {"producerGroup": GROUP, "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4"}
        ext |= {"queueId": "0", "sysFlag": "4", "bornTimestamp": str(int(time.time() * 1000)), "flag": "0"}
        header, _ = servers.rpc(self.server.broker, SEND, ext | {"properties": properties}, HANG_S, body.encode())
        assert header["code"] == 0, header
        found = header["extFields"]
        assert isinstance(found, dict)
        log_offset = str(int(str(found["msgId"])[16:], 16))
        place = {"tranStateTableOffset": str(found["queueOffset"]), "commitLogOffset": log_offset}
        return place | {"producerGroup": GROUP, "topic": TOPIC, "msgId": given["UNIQ_KEY"]}

    def roll_back_by_hand(self, place: dict[str, str]) -> None:
        assert self.server is not None
        before = self.max_offset(OPS)
        ends = {"commitOrRollback": "12", "fromTransactionCheck": "false", "transactionId": place["msgId"]}
        header, _ = servers.rpc(self.server.broker, END, place | ends)
        assert header["code"] == 0, header
        wait_until(lambda: self.max_offset(OPS) > before, "no op message for the end")

    def check_after(self, age_ms: int) -> None:
        """How old a half has to be for Apache's broker to ask about it, or put it back."""
        assert self.server is not None
        header, _ = servers.rpc(self.server.broker, UPDATE_CONFIG, body=f"transactionTimeOut={age_ms}\n".encode())
        assert header["code"] == 0, header

    def check_once(self, count: int) -> None:
        """Have Apache's broker ask about everything that is open, which it puts back first, and then rest."""
        assert self.server is not None
        broker, before = self.server.broker, self.max_offset(HALVES)
        wait_until(lambda: servers.rpc(broker, PRODUCERS, {"producerGroup": GROUP})[0]["code"] == 0, "nobody to ask")
        time.sleep(1.5 * SOON_MS / 1000)  # a pass ends at the first half that is too young
        self.check_after(SOON_MS)
        wait_until(lambda: self.max_offset(HALVES) > before, "Apache has put nothing back")
        self.check_after(QUIET["transactionTimeOut"])  # a pass that has begun ends as it began
        wait_until(lambda: self.max_offset(HALVES) >= before + count, "Apache has not put back all that is open")

    def check_again(self) -> None:
        """When every answer is noted, have Apache's broker look for what is open, round after round."""
        self.wait_until_noted()
        self.check_after(SOON_MS)

    def send_settled(self, prefix: str) -> None:
        self.send(f"{prefix}-settled-c", "commit", "rollback")
        self.send(f"{prefix}-settled-r", "rollback", "commit")

    def send_open(self, prefix: str) -> None:
        self.send(f"{prefix}-c", "unknown", "commit")
        self.send(f"{prefix}-r", "unknown", "rollback")

    def max_offset(self, topic: str) -> int:
        assert self.server is not None
        header, _ = servers.rpc(self.server.broker, MAX_OFFSET, {"topic": topic, "queueId": "0"})
        fields = header.get("extFields")
        return int(fields["offset"]) if isinstance(fields, dict) else 0

    def wait_until_noted(self) -> None:
        """Until the ends that were sent have their op messages."""
        since, seen = time.monotonic(), -1

        def is_quiet() -> bool:
            nonlocal since, seen
            found = self.max_offset(OPS)
            if found != seen:
                since, seen = time.monotonic(), found
            return seen > 0 and time.monotonic() - since > OPS_S

        wait_until(is_quiet, "op messages do not come to rest")

    def fill_until_marked(self) -> None:
        """Other people's messages, until the op queue says that nothing before them lacks its op."""
        assert self.server is not None
        before = self.max_offset(OPS)
        ext = {"producerGroup": "others", "topic": "Bulk", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4"}
        ext |= {"queueId": "0", "sysFlag": "0", "bornTimestamp": "0", "flag": "0", "properties": ""}
        for _ in range(BULK_MB):
            header, _ = servers.rpc(self.server.broker, SEND, ext, HANG_S, bytes(1_000_000))
            assert header["code"] == 0, header
        wait_until(lambda: self.max_offset(OPS) > before, "no mark in the op queue")

    def given_up(self, prefix: str) -> list[str]:
        """Those of one hundred: what a starved producer was too late for is given up too, until its answer comes."""
        assert self.server is not None
        ext = {"state": "given-up", "begin": "0", "limit": "500"}
        _, body = servers.rpc(self.server.broker, LIST_TRANSACTIONS, ext)
        listed = json.loads(body)["transactions"]
        return [one["messageId"] for one in listed if one["keys"].startswith(prefix)]

    def arm_again(self, message_ids: list[str]) -> None:
        assert self.server is not None
        for message_id in message_ids:
            header, _ = servers.rpc(self.server.broker, RESUME_CHECK, {"topic": GIVEN_UP, "msgId": message_id})
            assert header["code"] == 0, header

    def delivered(self) -> list[str]:
        assert self.producer is not None
        messages = self.producer.call("pull", HANG_S, group="reader", topic=TOPIC)["messages"]
        assert isinstance(messages, list)
        return sorted(str(message["body"]) for message in messages)

    def wait_until_settled(self, then: Callable[[], None] = lambda: None) -> None:
        """Until all that has to come has come; then nothing more comes, and nothing comes twice."""
        assert self._addresses is not None
        servers.wait_until_routed(self._addresses[0], TOPIC)
        try:
            wait_until(lambda: set(self.delivered()) >= set(self.expected), "not delivered")
        except AssertionError:
            missing = sorted(set(self.expected) - set(self.delivered()))
            raise AssertionError(f"{len(missing)} committed messages are not delivered: {missing[:20]}") from None
        then()
        time.sleep(CHECKS_S)
        assert self.delivered() == sorted(self.expected)


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    made = Play(tmp_path)
    yield made
    made.end("kill")


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("every_tool")
@pytest.mark.slow
@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("version", ["4.9.7", "5.x"])
def test_open_settled_and_put_back_halves_go_round_between_apache_and_gantry(
    play: Play, version: str, how: str
) -> None:
    server = play.serve(f"apache-{version}", **QUIET)
    servers.create_topic(server, TOPIC)
    play.produce(everything="unknown")
    play.send_settled("apache")
    play.wait_until_noted()
    play.send_open("apache-back")
    late = play.send_by_hand("apache-late", "commit")
    assert play.max_offset(HALVES) == 4 * COUNT + 1
    play.check_once(2 * COUNT + 1)
    # RocketMQ: an end that names the place from which a half was put back does not end the copy.
    play.roll_back_by_hand(late)
    play.expected.append("apache-late")
    play.send_open("apache-open")
    # A killed one may not have saved yet how far it has put back, and then nobody can tell the copies from originals.
    play.end("stop")

    play.serve("gantry", transactionCheckMax=12, transactionCheckInterval=500)
    play.produce(everything="")
    play.wait_until_settled()

    play.produce(everything="unknown")
    play.send_settled("gantry")
    play.send_open("gantry-back")
    wait_until(lambda: len(play.given_up("gantry-back")) == 2 * COUNT, "given up are not all that should be")
    play.end("stop")
    play.serve("gantry")  # with any number of checks: nothing more is given up, however long the rest takes
    play.produce(everything="unknown")
    before = play.max_offset(HALVES)
    play.arm_again(play.given_up("gantry-back"))
    wait_until(lambda: play.max_offset(HALVES) == before + 2 * COUNT, "not all are armed again")
    play.send_open("gantry-open")
    play.send_settled("gantry-late")
    play.fill_until_marked()
    play.end(how)

    server = play.serve(f"apache-{version}", **QUIET)
    servers.wait_until_routed(server.name_server, TOPIC)
    play.produce(everything="")
    play.check_once(4 * COUNT)
    play.wait_until_settled(play.check_again)
