"""What a name server answers, seen from the other end of the wire."""

from __future__ import annotations

import json

import pytest

from gantry.leaves import frames, hashes
from gantry.nameserver import keyvalues
from gantry.nameserver.handlers import NameServerHandlers
from gantry.nameserver.keyvalues import KeyValues
from gantry.nameserver.settings import Switches
from gantry.nameserver.table import RouteTable
from gantry.wire.codes import RequestCode, ResponseCode
from testkit.fake_connection import Chunk, FakeConnection
from testkit.routetables import topics_of


class StoppedClock:
    """Stands still until told."""

    seconds = 1.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


class Asker:
    """One connection to a name server of its own."""

    def __init__(self, switches: Switches = Switches()) -> None:  # noqa: B008  frozen
        self.table = RouteTable()
        self.handlers = NameServerHandlers(self.table, KeyValues(), StoppedClock(), switches)
        self.connection = FakeConnection()

    def ask(
        self, code: int, ext: dict[str, str] | None = None, body: bytes = b"", version: int = 479
    ) -> frames.Command:
        command = frames.Command(code, ext=ext, body=body, opaque=77, version=version)
        self.handlers.serve(self.connection, [command])  # type: ignore[arg-type]
        (answer,) = self.connection.take()
        assert (answer.opaque, answer.is_response) == (77, True)
        return answer

    def register(self, **changes: str) -> frames.Command:
        return self.ask(RequestCode.REGISTER_BROKER, broker(**changes), registration("T", "TBW102"))


def broker(**changes: str) -> dict[str, str]:
    fields = {"brokerName": "b-a", "brokerAddr": "10.0.0.1:10911", "clusterName": "C", "brokerId": "0"}
    return {**fields, "haServerAddr": "10.0.0.1:10912", **changes}


def registration(*topics: str, counter: int = 1) -> bytes:
    table = {name: {"topicName": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6} for name in topics}
    version = {"counter": counter, "stateVersion": 0, "timestamp": 5}
    return json.dumps({"topicConfigSerializeWrapper": {"dataVersion": version, "topicConfigTable": table}}).encode()


def test_a_route_is_compact_json_with_quoted_keys_for_every_client() -> None:
    asker = Asker()
    asker.register()
    for version in (317, 479):
        answer = asker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}, version=version)
        assert answer.body == (
            b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"b-a","cluster":"C",'
            b'"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"b-a","perm":6,'
            b'"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
        )


def test_the_template_topic_has_a_route_like_any_other() -> None:
    asker = Asker()
    asker.register()
    assert asker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}).code == 0


def test_an_unknown_topic_is_refused_by_name() -> None:
    answer = Asker().ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "X"})
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert "No topic route info in name server for the topic: X" in (answer.remark or "")


def test_a_checksum_that_does_not_match_is_refused_and_zero_is_not_checked() -> None:
    asker = Asker()
    body = registration("T", "TBW102")
    wrong = asker.ask(RequestCode.REGISTER_BROKER, broker(bodyCrc32="1"), body)
    assert (wrong.code, wrong.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")
    assert asker.ask(RequestCode.REGISTER_BROKER, broker(bodyCrc32="0"), body).code == 0
    assert asker.ask(RequestCode.REGISTER_BROKER, broker(bodyCrc32=str(hashes.crc31(body))), body).code == 0


def test_a_slave_is_told_its_master() -> None:
    asker = Asker()
    asker.register()
    answer = asker.register(brokerId="1", brokerAddr="10.0.0.2:10911")
    assert answer.ext == {"haServerAddr": "10.0.0.1:10912", "masterAddr": "10.0.0.1:10911"}


def test_order_topics_come_with_registrations_and_if_switched_on_with_routes() -> None:
    asker = Asker(Switches(order_message=True))
    value = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "b-a:4"}
    assert asker.ask(RequestCode.PUT_KV_CONFIG, value).code == 0
    assert asker.register().body == b'{"table":{"T":"b-a:4"}}'
    assert json.loads(asker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}).body)["orderTopicConf"] == "b-a:4"


def test_a_broker_says_goodbye() -> None:
    asker = Asker()
    asker.register()
    assert asker.ask(RequestCode.UNREGISTER_BROKER, broker()).code == 0
    assert asker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}).code == ResponseCode.TOPIC_NOT_EXIST


def test_the_recorded_version_is_compared_and_the_broker_counts_as_alive() -> None:
    asker = Asker()
    unknown = asker.ask(RequestCode.QUERY_DATA_VERSION, broker(), b'{"counter":1,"stateVersion":0,"timestamp":5}')
    assert (unknown.ext["changed"], unknown.body) == ("true", b"")
    asker.register()
    same = asker.ask(RequestCode.QUERY_DATA_VERSION, broker(), b'{"counter":1,"stateVersion":0,"timestamp":5}')
    assert (same.ext["changed"], json.loads(same.body)["counter"]) == ("false", 1)
    other = asker.ask(RequestCode.QUERY_DATA_VERSION, broker(), b'{"counter":2,"stateVersion":0,"timestamp":5}')
    assert other.ext["changed"] == "true"


def test_a_broker_heartbeat_changes_the_time_out() -> None:
    asker = Asker()
    asker.register()
    asker.ask(RequestCode.BROKER_HEARTBEAT, {**broker(), "heartbeatTimeoutMills": "1000"})
    assert asker.table.expire(2001) == [asker.connection]


def test_cluster_and_topic_lists_have_rocketmqs_shapes() -> None:
    asker = Asker()
    asker.register()
    assert json.loads(asker.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body) == {
        "brokerAddrTable": {
            "b-a": {
                "brokerAddrs": {"0": "10.0.0.1:10911"},
                "brokerName": "b-a",
                "cluster": "C",
                "enableActingMaster": False,
            }
        },
        "clusterAddrTable": {"C": ["b-a"]},
    }
    assert json.loads(asker.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body) == {"topicList": ["T", "TBW102"]}
    assert json.loads(asker.ask(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "C"}).body)["topicList"] == [
        "T",
        "TBW102",
    ]
    assert json.loads(asker.ask(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "D"}).body)["topicList"] == []
    system = json.loads(asker.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS).body)
    assert system["brokerAddr"] == "10.0.0.1:10911"
    assert {"C", "b-a", "TBW102"} <= set(system["topicList"])
    members = json.loads(asker.ask(RequestCode.GET_BROKER_MEMBER_GROUP, {"clusterName": "C", "brokerName": "b-a"}).body)
    assert members["brokerMemberGroup"]["brokerAddrs"] == {"0": "10.0.0.1:10911"}


def test_tools_take_and_give_write_permission_and_delete_topics() -> None:
    asker = Asker()
    asker.register()
    assert asker.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "b-a"}).ext == {"wipeTopicCount": "2"}
    assert asker.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "b-a"}).ext == {"addTopicCount": "2"}
    asker.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "T"})
    assert topics_of(asker.table) == ["TBW102"]


def test_key_values_are_put_listed_and_deleted() -> None:
    asker = Asker()
    where = {"namespace": "N", "key": "k"}
    assert asker.ask(RequestCode.GET_KV_CONFIG, where).code == ResponseCode.QUERY_NOT_FOUND
    assert asker.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "N"}).code == ResponseCode.QUERY_NOT_FOUND
    asker.ask(RequestCode.PUT_KV_CONFIG, {**where, "value": "v"})
    assert asker.ask(RequestCode.GET_KV_CONFIG, where).ext == {"value": "v"}
    assert asker.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "N"}).body == b'{"table":{"k":"v"}}'
    asker.ask(RequestCode.DELETE_KV_CONFIG, where)
    assert asker.ask(RequestCode.GET_KV_CONFIG, where).code == ResponseCode.QUERY_NOT_FOUND


def test_key_values_are_bounded_all_together_and_room_comes_back() -> None:
    asker = Asker()
    value, refused, count = "v" * 30_000, 0, 0
    while refused == 0:
        count += 1
        refused = asker.ask(RequestCode.PUT_KV_CONFIG, {"namespace": f"N{count}", "key": "k", "value": value}).code
    assert refused == ResponseCode.SYSTEM_ERROR
    assert 1 << 20 < count * 30_010 < (1 << 20) + 60_000
    first = {"namespace": "N1", "key": "k"}
    assert asker.ask(RequestCode.PUT_KV_CONFIG, {**first, "value": "w" * 30_000}).code == 0  # no more than before
    asker.ask(RequestCode.DELETE_KV_CONFIG, first)
    assert asker.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "N1"}).code == ResponseCode.QUERY_NOT_FOUND
    assert asker.ask(RequestCode.PUT_KV_CONFIG, {"namespace": "N", "key": "k", "value": value}).code == 0


def test_an_answer_that_no_frame_can_hold_is_said_and_ends_no_connection() -> None:
    """A broker whose connection ends has no routes any more."""
    asker = Asker()
    table = {f"T{number}": "\u00e4" * 30_000 for number in range(100)}
    asker.handlers._key_values.load_json(json.dumps({"configTable": {"ORDER_TOPIC_CONFIG": table}}).encode())
    answer = asker.register()
    assert (answer.code, "too long" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
    assert topics_of(asker.table) == ["T", "TBW102"]


def test_nothing_is_answered_behind_the_answer_that_was_too_much_for_the_connection() -> None:
    class Full(FakeConnection):
        def write(self, data: Chunk) -> None:
            super().write(data)
            self.closed = True

    asker = Asker()
    asker.connection = Full()
    topics = frames.Command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    asker.handlers.serve(asker.connection, [topics, topics, topics])  # type: ignore[arg-type]
    assert asker.handlers.answered == {RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: 1}


def test_switches_change_at_run_time_and_others_do_not() -> None:
    asker = Asker()
    assert asker.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"enableAllTopicList=false\nunknownKey=1\n").code == 0
    assert asker.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).code == ResponseCode.NO_PERMISSION
    assert b"enableAllTopicList=false\n" in asker.ask(RequestCode.GET_NAMESRV_CONFIG).body
    refused = asker.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"enableAllTopicList=true\nkvConfigPath=/etc/x\n")
    assert refused.code == ResponseCode.NO_PERMISSION
    refused = asker.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"enableAllTopicList=ture\n")
    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert refused.remark == "enableAllTopicList 'ture': expected true or false"
    assert asker.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize(
    ("code", "ext", "body", "named"),
    [
        (RequestCode.REGISTER_BROKER, {}, b"", "brokerName"),
        (RequestCode.REGISTER_BROKER, broker(brokerId="x"), b"", "brokerId"),
        (RequestCode.REGISTER_BROKER, broker(), b"\xff", "UTF-8"),
        (RequestCode.REGISTER_BROKER, broker(), b"[]", "object"),
        (RequestCode.REGISTER_BROKER, broker(compressed="true"), b"abc", "damaged"),
        (RequestCode.QUERY_DATA_VERSION, broker(), b"[", "JSON"),
        (RequestCode.GET_ROUTEINFO_BY_TOPIC, {}, b"", "topic"),
    ],
)
def test_a_request_that_cannot_be_read_is_told_why(code: int, ext: dict[str, str], body: bytes, named: str) -> None:
    answer = Asker().ask(code, ext, body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert named in (answer.remark or "")


def test_other_requests_are_refused_by_code_even_those_that_carry_messages() -> None:
    asker = Asker()
    assert asker.ask(RequestCode.GET_BROKER_RUNTIME_INFO).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    pull = frames.Pull(opaque=5)
    asker.handlers.serve(asker.connection, [pull])  # type: ignore[arg-type]
    (answer,) = asker.connection.take()
    assert (answer.opaque, answer.code) == (5, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)


def test_a_oneway_request_is_carried_out_and_not_answered() -> None:
    asker = Asker()
    command = frames.Command(RequestCode.REGISTER_BROKER, ext=broker(), body=registration("T", "U"), flag=2)
    asker.handlers.serve(asker.connection, [command])  # type: ignore[arg-type]
    assert asker.connection.take() == []
    assert topics_of(asker.table) == ["T", "U"]


def test_entries_are_counted_down_when_they_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyvalues, "_ENTRIES_MAX", 2)
    asker = Asker()
    wanted = [{"namespace": "N", "key": key, "value": "v"} for key in ("a", "b", "c")]
    codes = [asker.ask(RequestCode.PUT_KV_CONFIG, one).code for one in wanted]
    asker.ask(RequestCode.DELETE_KV_CONFIG, {"namespace": "N", "key": "a"})
    codes.append(asker.ask(RequestCode.PUT_KV_CONFIG, {"namespace": "N", "key": "c", "value": "v"}).code)
    assert codes == [0, 0, ResponseCode.SYSTEM_ERROR, 0]


def test_a_single_topic_as_rocketmqs_broker_and_ours_register_it() -> None:
    asker = Asker()
    body = b'{"queueDatas":[{"brokerName":"b-a","perm":6,"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":3}]}'
    single = RequestCode.REGISTER_TOPIC_IN_NAMESRV
    assert asker.ask(single, {"topic": "U"}, body).code == ResponseCode.SYSTEM_ERROR
    asker.register()
    assert asker.ask(single, {"topic": "U"}, body).code == 0
    assert asker.ask(single, {"topic": "W", "brokerAddr": "10.0.0.1:10911"}, body).code == 0
    assert asker.ask(single, {"topic": "X", "brokerAddr": "10.0.0.9:10911"}, body).code == ResponseCode.SYSTEM_ERROR
    assert topics_of(asker.table) == ["T", "TBW102", "U", "W"]
    for damaged in (b"", b"[]", b'{"queueDatas":[7]}'):
        assert asker.ask(single, {"topic": "U"}, damaged).code == ResponseCode.SYSTEM_ERROR
