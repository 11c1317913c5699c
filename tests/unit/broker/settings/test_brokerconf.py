"""RocketMQ's broker.conf starts a broker here, and nothing in it is ignored in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from gantry.broker.settings import brokerconf, loading
from gantry.broker.settings.config import KEYS, BrokerConfig
from gantry.broker.settings.sources import flat
from gantry.errors import ConfigError
from gantry.store.settings import Flush

# Apache's conf/2m-noslave/broker-a.properties and what people add to it.
STOCK = """
# a comment
! another
brokerClusterName = DefaultCluster
brokerName=broker-b
brokerId=0
deleteWhen=04;16
fileReservedTime=48
brokerRole=ASYNC_MASTER
flushDiskType=SYNC_FLUSH
namesrvAddr=10.0.0.1:9876;10.0.0.2:9876
listenPort: 20911
storePathRootDir=/data/\\
  store
mapedFileSizeCommitLog=134217728
mappedFileSizeConsumeQueue=6000000
diskMaxUsedSpaceRatio=88
maxMessageSize=1048576
syncFlushTimeout=2500
sendMessageThreadPoolNums=128
mySpecialKey=1
"""


def test_a_stock_file_is_translated_key_by_key(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(STOCK)
    loaded, notices = loading.load(str(path))
    assert (loaded.name, loaded.network.port, loaded.store.root) == ("broker-b", 20911, "/data/store")
    assert loaded.store.flush is Flush.SYNC and loaded.store.segment_bytes == 128 << 20
    assert loaded.store.queue_file_entries == 300_000 and loaded.store.disk_used_max == 0.88
    assert loaded.store.delete_hours == ("04", "16") and loaded.store.reserved_hours == 48.0
    assert loaded.name_servers == ("10.0.0.1:9876", "10.0.0.2:9876")
    assert loaded.messages.ack_wait_s == 2.5 and loaded.messages.body_bytes_max == 1 << 20
    assert len(notices) == 2
    assert "sendMessageThreadPoolNums has no meaning here; one event loop" in notices[0]
    assert "mySpecialKey has no meaning here; it is not known" in notices[1]


@pytest.mark.parametrize("value", ["soon", "9" * 400, "9" * 5000])
def test_a_value_that_cannot_be_translated_names_key_and_file(tmp_path: Path, value: str) -> None:
    path = tmp_path / "broker.properties"
    path.write_text(f"syncFlushTimeout={value}\n")
    found = rf"broker\.properties:1: syncFlushTimeout: expected a whole number, found '{value[:80]}'"
    with pytest.raises(ConfigError, match=found):
        loading.load(str(path))
    path.write_text("brokerRole=SLAVE\n")
    with pytest.raises(ConfigError, match=r"set replication\.secret_file"):
        loading.load(str(path))


def test_a_commit_log_that_lies_elsewhere_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("storePathRootDir=/data/store\nstorePathCommitLog=/fast/commitlog\n")
    with pytest.raises(ConfigError, match=r"storePathCommitLog=/fast/commitlog: .* in /data/store/commitlog, .* move"):
        loading.load(str(path))
    path.write_text("storePathRootDir=/data/store\nstorePathCommitLog=/data/store/commitlog/\n")
    assert "storePathCommitLog has no meaning here" in loading.load(str(path))[1][0]
    with pytest.raises(ConfigError, match="/elsewhere/commitlog"):  # the root that counts is the one of the flag
        loading.load(str(path), flags={"store.root": "/elsewhere"})


def test_access_control_that_nobody_would_keep_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("aclEnable=true\n")
    with pytest.raises(ConfigError, match=r"aclEnable=true: .* every client may do everything; set it to false and"):
        loading.load(str(path))
    path.write_text("aclEnable=false\n")
    assert "aclEnable has no meaning here" in loading.load(str(path))[1][0]


def test_every_translated_key_exists_and_comes_back_the_same() -> None:
    values = flat(BrokerConfig())
    assert {translation.key for translation in brokerconf.KEYS.values()} <= KEYS.keys()
    assert not brokerconf.KEYS.keys() & brokerconf.WITHOUT_MEANING.keys()
    rendered = brokerconf.rendered(values)
    assert rendered["flushDiskType"] == "ASYNC_FLUSH" and rendered["syncFlushTimeout"] == "5000"
    assert rendered["mappedFileSizeConsumeQueue"] == "6000000" and rendered["autoCreateTopicEnable"] == "true"
    flags = {
        (brokerconf.KEYS[name].key if name in brokerconf.KEYS else name): (
            brokerconf.translated(name, text, "here") if name in brokerconf.KEYS else text
        )
        for name, text in rendered.items()
    }
    assert loading.load(flags=flags)[0] == BrokerConfig()


def test_properties_are_read_as_java_reads_them() -> None:
    assert brokerconf.parse("a = 1\nb:2\n#c=3\nd\n\n e=f=g\nh=\\\n  i\n") == {
        "a": "1",
        "b": "2",
        "d": "",
        "e": "f=g",
        "h": "i",
    }
