"""Runtime information and configuration as RocketMQ's tools read them."""

from __future__ import annotations

from gantry.broker.meters.rates import Rates
from gantry.broker.requests.admin import AdminHandlers
from gantry.broker.settings.config import BrokerConfig
from gantry.broker.settings.live import LiveConfig
from gantry.wire import bodies
from testkit.requests import request
from testkit.sendplay import SendPlay, message


class Play(SendPlay):
    def __init__(self) -> None:
        super().__init__()
        self.live = LiveConfig(BrokerConfig(name="shop"))
        rates = Rates(lambda: dict.fromkeys(("put", "found", "missed", "got"), self.appender.messages), self.clock)
        self.admin = AdminHandlers(self.live, self.store, self.appender, self.acks, self.sending, rates, self.clock)

    def table(self) -> dict[str, str]:
        reply = self.admin.runtime_info(self.connection, request(28))  # type: ignore[arg-type]
        table = bodies.loads_object(reply.body)["table"]
        assert isinstance(table, dict)
        return table


def test_runtime_information_is_a_table_of_texts_with_the_keys_that_tools_parse() -> None:
    play = Play()
    play.send(message(), message("no good!"))
    play.clock.advance((86_400 + 3661) * 1000)
    table = play.table()
    assert all(isinstance(value, str) for value in table.values())
    assert table["brokerVersionDesc"] == "V5_3_3" and int(table["brokerVersion"]) == 479
    assert table["runtime"] == "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"
    assert len(table["putTps"].split()) == len(table["getTransferedTps"].split()) == 3
    assert (table["putMessageTimesTotal"], table["putMessageFailedTimes"]) == ("1", "1")
    assert table["putMessageDistributeTime"].startswith("[<=0ms]:0 [0~10ms]:1 ")
    words = table["commitLogDirCapacity"].split(" ")
    assert (words[0], words[4]) == ("Total", "Free") and words[3].startswith(("B", "K", "M", "G", "T", "P", "E"))
    assert int(table["commitLogMaxOffset"]) == play.store.written.offset
    assert int(table["earliestMessageTimeStamp"]) > 0


def test_an_empty_broker_has_its_figures_too() -> None:
    table = Play().table()
    assert table["earliestMessageTimeStamp"] == "-1" and table["putLatency99"] == "0.00"
    assert table["putMessageTimesTotal"] == "1", "RocketMQ: never zero, somebody divides by it"


def test_the_configuration_is_told_under_rocketmqs_names() -> None:
    reply = Play().admin.get_config(None, request(26))  # type: ignore[arg-type]
    lines = reply.body.decode().splitlines()
    assert "brokerName=shop" in lines and "flushDiskType=ASYNC_FLUSH" in lines and "pull.held_max=100000" in lines
    assert bodies.loads_object(reply.ext["version"].encode()).keys() == {"counter", "stateVersion", "timestamp"}


def test_hot_keys_change_by_either_name_and_others_are_refused() -> None:
    play = Play()

    def update(text: bytes) -> int:
        return play.admin.update_config(None, request(25, text)).code  # type: ignore[arg-type]

    assert update(b"brokerPermission=4\nmessages.body_bytes_max=1000\n") == 0
    assert (play.live.current.permission, play.live.current.messages.body_bytes_max) == (4, 1000)
    assert update(b"listenPort=1\n") == 16
    assert update(b"nobodyKnows=1\n") == 16
    assert update(b"brokerPermission=9\n") == 29
    assert update(b"") == 29
    assert update(b"\xff=1") == 29
