"""A static pair of real processes: what is acknowledged is on both, no matter who dies, and however the link does."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from gantry.wire import ha
from testkit.pairplay import Pair, until
from testkit.patience import HANG_S
from testkit.rawclient import RawClient, pull_fields

OK, FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE, NOT_NOW, BUSY = 0, 12, 11, 14, 2
TOPIC = "orders"


def sent(client: RawClient, bodies: list[bytes], topic: str = TOPIC) -> list[int]:
    """Their codes, in order."""
    for body in bodies:
        client.send(topic, 0, body)
    codes = []
    for _ in bodies:
        reply = client.reply()
        assert reply is not None
        codes.append(reply.code)
    return codes


def batch(name: str, count: int, size: int = 300) -> list[bytes]:
    return [f"{name}-{number:05d}".encode().ljust(size, b".") for number in range(count)]


def bodies_on(pair: Pair, broker_id: int, topic: str = TOPIC) -> list[bytes]:
    with pair.client(broker_id) as client:
        return [body for _, body in client.read(topic, 0)]


def both_running(pair: Pair) -> None:
    pair.start(0)
    pair.start(1)
    pair.until_writable()


def test_what_is_acknowledged_is_on_both_and_the_logs_are_equal(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair:
        both_running(pair)
        wanted = batch("first", 3000, 2000)  # over a segment's end
        with pair.client(0) as client:
            assert set(sent(client, wanted)) == {OK}
            # The slave has them already; what it shows follows with the next word of the master.
        pair.until_equal(1)
        until(lambda: set(wanted) <= set(bodies_on(pair, 1)), "the slave shows what is confirmed")
        mine, theirs = pair.members[0].log_bytes(), pair.members[1].log_bytes()
        assert mine[: len(theirs)] == theirs[: len(mine)] and len(mine) > 6_000_000
        assert pair.members[1].stop() == 0 and pair.members[0].stop() == 0


def test_a_dead_slave_stops_writes_that_need_it_and_they_go_on_when_it_is_back(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair:
        both_running(pair)
        with pair.client(0) as client:
            assert set(sent(client, batch("before", 20))) == {OK}
            pair.members[1].kill()
            # Stored here, not on the slave: neither a yes nor a no.
            assert set(sent(client, batch("meanwhile", 3))) <= {SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT}

            def is_refused() -> bool:
                client.send(TOPIC, 0, b"refused")
                reply = client.reply()
                assert reply is not None
                return reply.code == NOT_NOW and "start a slave" in (reply.remark or "")

            until(is_refused, "writes are refused at once")
            pair.start(1)
            pair.until_writable()
            assert set(sent(client, batch("after", 20))) == {OK}
        pair.until_equal(1)
        assert set(batch("before", 20) + batch("meanwhile", 3) + batch("after", 20)) <= set(bodies_on(pair, 0))


@pytest.mark.slow
def test_where_one_member_is_enough_writes_go_on_and_the_slave_catches_up(tmp_path: Path) -> None:
    with Pair(tmp_path, config={"replication.min_in_sync": "1"}) as pair:
        both_running(pair)
        pair.members[1].kill()
        with pair.client(0) as client:
            until(lambda: sent(client, [b"alone"]) == [OK], "the slave has left the set")
            assert set(sent(client, batch("alone", 500, 1000))) == {OK}
        pair.start(1)
        pair.until_equal(1)
        until(lambda: set(batch("alone", 500, 1000)) <= set(bodies_on(pair, 1)), "the slave shows them")


@pytest.mark.slow
def test_a_cut_link_is_a_dead_slave_and_heals(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair:
        both_running(pair)
        pair.proxy.cut()
        with pair.client(0) as client:
            assert set(sent(client, batch("cut", 3))) <= {SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT}
            pair.proxy.heal()
            pair.until_writable()
            assert set(sent(client, batch("healed", 50))) == {OK}
        pair.until_equal(1)


def test_the_slave_of_a_dead_master_serves_readers_and_names_the_master(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair:
        both_running(pair)
        wanted = batch("kept", 200)
        with pair.client(0) as client:
            assert set(sent(client, wanted)) == {OK}
            committed = {"consumerGroup": "raw-client", "topic": TOPIC, "queueId": "0", "commitOffset": "70"}
            assert client.call(11, pull_fields(TOPIC, 0, 0)).code == OK  # the group comes to be
            assert client.call(15, committed).code == OK
        asked = {"consumerGroup": "raw-client", "topic": TOPIC, "queueId": "0"}
        with pair.client(1) as client:
            until(lambda: client.call(14, asked).ext.get("offset") == "70", "the slave knows the offset")
        address = "{}:{}".format(*pair.members[0].addresses["broker"])
        # A slave shows what the master called confirmed in its last word: kill it only when that word has come.
        until(lambda: set(wanted) <= set(bodies_on(pair, 1)), "the slave shows what is confirmed")
        pair.members[0].kill()
        assert set(wanted) <= set(bodies_on(pair, 1)), "it goes on showing it"
        with pair.client(1) as client:
            client.send(TOPIC, 0, b"not here")
            reply = client.reply()
            assert reply is not None and reply.code == BUSY and address in (reply.remark or "")
            refused = client.call(17, {"topic": "new", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"})
            assert refused.code != OK and address in (refused.remark or "")
            # What is committed here while the master is away comes to it.
            assert client.call(15, committed | {"commitOffset": "90"}).code == OK
            assert client.call(14, asked).ext["offset"] == "90"
        pair.start(0)
        with pair.client(0) as client:
            until(lambda: client.call(14, asked).ext.get("offset") == "90", "the master knows what the slave heard")


@pytest.mark.parametrize("role", ["SYNC_MASTER", pytest.param("ASYNC_MASTER", marks=pytest.mark.slow)])
def test_a_slave_is_promoted_by_hand_and_the_old_master_cuts_what_nobody_confirmed(tmp_path: Path, role: str) -> None:
    with Pair(tmp_path, role=role) as pair:
        both_running(pair)
        acknowledged = batch("acknowledged", 300)
        with pair.client(0) as client:
            assert set(sent(client, acknowledged)) == {OK}
            pair.until_equal(1)
            pair.proxy.cut()
            answers = sent(client, batch("nobody has it", 40))
            assert answers == [OK] * 40 if role == "ASYNC_MASTER" else OK not in answers
        pair.members[0].kill()
        pair.members[1].stop()
        longer = len(pair.members[0].log_bytes().rstrip(b"\0"))

        pair.start(1, role="SYNC_MASTER", replication__min_in_sync="1")
        with pair.client(1) as client:
            until(lambda: sent(client, [b"a new era"]) == [OK], "the promoted one takes messages")
            assert set(sent(client, batch("new", 10))) == {OK}
        assert set(acknowledged) <= set(bodies_on(pair, 1))
        shorter = len(pair.members[1].log_bytes().rstrip(b"\0"))
        assert shorter < longer

        # Without the proxy: its target is the new master now.
        pair.proxy.heal()
        old = pair.start(0, role="SLAVE", id="2")
        until(lambda: "the log was cut at" in old.stderr(), "the old master cuts its log")
        assert re.search(r"40 messages \(\d+ bytes\) are lost that may have been acknowledged; 40 in all", old.stderr())
        until(lambda: old.log_bytes() == pair.members[1].log_bytes(), "the logs are equal")
        until(lambda: bodies_on(pair, 0) == bodies_on(pair, 1), "both show the same")
        assert b"nobody has it" not in old.log_bytes()


@pytest.mark.slow
def test_a_master_that_lost_its_slave_for_good_is_not_followed_by_one_that_knows_more(tmp_path: Path) -> None:
    with Pair(tmp_path, config={"replication.min_in_sync": "1"}) as pair:
        both_running(pair)
        pair.until_equal(1)
        pair.members[1].kill()
        with pair.client(0) as client:
            until(lambda: sent(client, batch("alone", 30)) == [OK] * 30, "the slave has left the set")
        pair.members[0].stop()
        # The wrong one is promoted: it lacks what the other acknowledged.
        pair.start(1, role="ASYNC_MASTER")
        with pair.client(1) as client:
            assert sent(client, [b"in ignorance"]) == [OK]
        old = pair.start(0, role="SLAVE", id="2")
        until(lambda: "lacks confirmed messages" in old.stderr(), "the old master says what is wrong")
        assert b"alone-00029" in old.log_bytes(), "nothing confirmed is cut"


@pytest.mark.slow
def test_topics_groups_and_deletions_come_over(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair:
        both_running(pair)
        fields = {"topic": "made", "defaultTopic": "TBW102", "readQueueNums": "3", "writeQueueNums": "3", "perm": "6"}
        fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
        with pair.client(0) as master, pair.client(1) as slave:
            assert master.call(17, fields).code == OK
            assert slave.call(351, {"topic": "made"}).code == OK, "an answered change is on the slave"
            assert set(sent(master, batch("old life", 5), "made")) == {OK}
            until(lambda: len(slave.read("made", 0)) == 5, "the slave shows them")
            assert master.call(215, {"topic": "made"}).code == OK
            assert slave.call(351, {"topic": "made"}).code != OK
            assert master.call(17, fields).code == OK
            assert set(sent(master, batch("new life", 3), "made")) == {OK}
            until(lambda: slave.read("made", 0) == master.read("made", 0), "the slave has the new queue only")
            assert len(master.read("made", 0)) == 3
        pair.members[1].stop()
        pair.start(1)
        until(lambda: len(bodies_on(pair, 1, "made")) == 3, "also after its restart")


@pytest.mark.slow
def test_an_async_master_answers_alone_and_shows_what_the_set_has(tmp_path: Path) -> None:
    with Pair(tmp_path, role="ASYNC_MASTER") as pair:
        pair.start(0)
        with pair.client(0) as client:
            assert set(sent(client, batch("without a slave", 10))) == {OK}
            pair.start(1)
            pair.until_equal(1)
            pair.proxy.cut()
            assert set(sent(client, batch("cut off", 10))) == {OK}
            until(lambda: len(client.read(TOPIC, 0)) == 20, "the slave leaves and they are shown")
        pair.proxy.heal()
        pair.until_equal(1)


@pytest.mark.slow
def test_strangers_on_the_replication_port_hurt_nobody(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair:
        both_running(pair)
        for data in (b"GET / HTTP/1.1\r\n\r\n", bytes(8), ha.MAGIC + bytes(32) + b"\xff" * 100, b"\x16\x03\x01"):
            with socket.create_connection(("127.0.0.1", pair.proxy.target), 10) as stranger:
                stranger.sendall(data)
                stranger.settimeout(60)
                if data != b"\x16\x03\x01":
                    while stranger.recv(4096):
                        pass
        with pair.client(0) as client:
            assert set(sent(client, batch("undisturbed", 20))) == {OK}
        assert "RocketMQ slave" in pair.members[0].stderr()


@pytest.mark.slow
def test_a_slave_with_another_secret_is_turned_away(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair:
        pair.start(0)
        other = tmp_path / "other secret"
        other.write_text("not the secret of this group")
        slave = pair.start(1, replication__secret_file=str(other))
        until(lambda: "does not know our secret" in slave.stderr(), "the slave says so")
        assert not slave.log_bytes().rstrip(b"\0")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"replication__secret_file": ""}, "set replication.secret_file"),
        ({"id": "0"}, "a slave's 1 to"),
        ({"replication__secret_file": "/does/not/exist"}, "No such file"),
    ],
)
def test_a_slave_that_cannot_be_says_what_to_set(tmp_path: Path, config: dict[str, str], reason: str) -> None:
    with Pair(tmp_path) as pair:
        slave = pair.start(1, ready=False, **config)
        assert slave.popen.wait(HANG_S) == 2
        assert reason in slave.stderr()
