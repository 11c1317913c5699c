"""RocketMQ's broker.conf: a properties file, translated key by key.

`KEYS` is the table: RocketMQ's name, GantryMQ's dotted key, and how the value is converted.  Some names exist twice
because RocketMQ corrected its spelling in version 4.9.  `WITHOUT_MEANING` names keys that users often set and that have
no effect here, with the reason.

Every key that is not translated is logged once.  Only two keys are errors, because a working broker.conf of RocketMQ
has to start a broker: `aclEnable=true`, because there is no access control, and a commit log in another folder, because
the broker would start without its messages.

The same table gives keys RocketMQ's names when a tool asks for the configuration (GET_BROKER_CONFIG).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gantry.broker.settings.sources import ConfigLayer, read_text
from gantry.errors import ConfigError
from gantry.store import filenames


def _same(value: str) -> str:
    return value


def _bytes_to_entries(value: str) -> str:
    return str(int(value) // 20)


def _entries_to_bytes(value: str) -> str:
    return str(int(value) * 20)


def _ms_to_s(value: str) -> str:
    return str(int(value) / 1000)


def _period_to_s(value: str) -> str:
    return str(max(10_000, min(int(value), 60_000)) / 1000)  # RocketMQ: limits the period to this range


def _s_to_ms(value: str) -> str:
    return str(round(float(value) * 1000))


def _percent_to_share(value: str) -> str:
    return str(int(value) / 100)


def _share_to_percent(value: str) -> str:
    return str(round(float(value) * 100))


def _negated(value: str) -> str:
    return "false" if value.strip().lower() == "true" else "true"


_UNITS: dict[Callable[[str], str], str] = {
    _bytes_to_entries: "bytes",
    _ms_to_s: "milliseconds",
    _period_to_s: "milliseconds, 10000 to 60000",
    _percent_to_share: "percent",
    _negated: "the opposite",
}


@dataclass(frozen=True, slots=True)
class Translation:
    """The dotted key for a RocketMQ key, and the conversions of its value."""

    key: str
    ours: Callable[[str], str] = _same
    theirs: Callable[[str], str] = _same

    @property
    def unit(self) -> str:
        """RocketMQ's unit, where it differs."""
        return _UNITS.get(self.ours, "")


KEYS: dict[str, Translation] = {
    "brokerClusterName": Translation("cluster"),
    "brokerName": Translation("name"),
    "brokerId": Translation("id"),
    "brokerRole": Translation("role"),
    "namesrvAddr": Translation("name_servers"),
    "brokerPermission": Translation("permission"),
    "brokerIP1": Translation("network.advertise"),
    "listenPort": Translation("network.port"),
    "serverChannelMaxIdleTimeSeconds": Translation("network.idle_s"),
    "storePathRootDir": Translation("store.root"),
    "flushDiskType": Translation("store.flush"),
    "mapedFileSizeCommitLog": Translation("store.segment_bytes"),
    "mappedFileSizeCommitLog": Translation("store.segment_bytes"),
    "mapedFileSizeConsumeQueue": Translation("store.queue_file_entries", _bytes_to_entries, _entries_to_bytes),
    "mappedFileSizeConsumeQueue": Translation("store.queue_file_entries", _bytes_to_entries, _entries_to_bytes),
    "maxHashSlotNum": Translation("store.index_slots"),
    "maxIndexNum": Translation("store.index_entries"),
    "haListenPort": Translation("network.ha_port"),
    "haMasterAddress": Translation("replication.master"),
    "haSecretFile": Translation("replication.secret_file"),
    "inSyncReplicas": Translation("replication.min_in_sync"),
    "slaveTimeout": Translation("replication.ack_timeout_s", _ms_to_s, _s_to_ms),
    "slaveReadEnable": Translation("replication.slave_read"),
    "flushIntervalCommitLog": Translation("store.flush_interval_ms"),
    "flushCommitLogLeastPages": Translation("store.flush_pages"),
    "flushCommitLogThoroughInterval": Translation("store.flush_full_ms"),
    "deleteWhen": Translation("store.delete_hours"),
    "fileReservedTime": Translation("store.reserved_hours"),
    "diskMaxUsedSpaceRatio": Translation("store.disk_used_max", _percent_to_share, _share_to_percent),
    "cleanFileForciblyEnable": Translation("store.clean_forcibly"),
    "maxMessageSize": Translation("messages.body_bytes_max"),
    "syncFlushTimeout": Translation("messages.ack_wait_s", _ms_to_s, _s_to_ms),
    "regionId": Translation("messages.region"),
    "autoCreateTopicEnable": Translation("topics.auto_create"),
    "defaultTopicQueueNums": Translation("topics.template_queues"),
    "enableTopicMessageTypeCheck": Translation("topics.check_message_type"),  # of RocketMQ's proxy
    "autoCreateSubscriptionGroup": Translation("topics.auto_create_groups"),
    "maxTransferCountOnMessageInMemory": Translation("pull.count_max"),
    "maxTransferBytesOnMessageInMemory": Translation("pull.bytes_default"),
    "flushConsumerOffsetInterval": Translation("clients.offsets_save_s", _ms_to_s, _s_to_ms),
    "transactionTimeOut": Translation("transactions.immunity_s", _ms_to_s, _s_to_ms),
    "transactionTimeout": Translation("transactions.immunity_s", _ms_to_s, _s_to_ms),
    "transactionCheckInterval": Translation("transactions.check_interval_s", _ms_to_s, _s_to_ms),
    "transactionCheckMax": Translation("transactions.checks_max"),
    "rejectTransactionMessage": Translation("transactions.enabled", _negated, _negated),
    "messageDelayLevel": Translation("delays.levels"),
    "timerWheelEnable": Translation("delays.times"),
    "timerMaxDelaySec": Translation("delays.ahead_s_max"),
    "recallMessageEnable": Translation("delays.recall"),
    "popFromRetryProbability": Translation("pop.from_retry_percent"),
    "popInflightMessageThreshold": Translation("pop.leases_max"),
    "defaultMessageRequestMode": Translation("pop.default_mode"),
    "defaultPopShareQueueNum": Translation("pop.default_share_queues"),
    "serverLoadBalancerEnable": Translation("pop.balances"),
    "maxPopPollingSize": Translation("pop.held_max"),
    "popPollingSize": Translation("pop.held_per_queue_max"),
    "registerNameServerPeriod": Translation("registration.period_s", _period_to_s, _s_to_ms),
    "registerBrokerTimeoutMills": Translation("registration.timeout_s", _ms_to_s, _s_to_ms),
}

_BEATS = "links of replication have a beat of their own, a second"
_THREADS = "one event loop serves all requests; there are no thread pools"
_FOLDERS = "the folders stand under store.root"
_ACL = "access control comes with a later version"
_COMMIT_LOG = "storePathCommitLog"
_POOL = "records are written by pwrite; there is no buffer pool"

WITHOUT_MEANING: dict[str, str] = {
    "brokerIP2": "slaves connect to the address that clients are told",
    "haSendHeartbeatInterval": _BEATS,
    "haHousekeepingInterval": _BEATS,
    "timerPrecisionMs": "times of delivery are kept to 10 ms",
    _COMMIT_LOG: _FOLDERS,
    "storePathConsumeQueue": _FOLDERS,
    "storePathIndex": _FOLDERS,
    "storeCheckpoint": _FOLDERS,
    "abortFile": _FOLDERS,
    "sendMessageThreadPoolNums": _THREADS,
    "pullMessageThreadPoolNums": _THREADS,
    "sendThreadPoolQueueCapacity": _THREADS,
    "pullThreadPoolQueueCapacity": _THREADS,
    "useReentrantLockWhenPutMessage": _THREADS,
    "waitTimeMillsInSendQueue": _THREADS,
    "brokerFastFailureEnable": _THREADS,
    "transientStorePoolEnable": _POOL,
    "transientStorePoolSize": _POOL,
    "warmMapedFileEnable": _POOL,
    "aclEnable": _ACL,
    "enablePropertyFilter": "SQL92 filters are always on: what an expression may cost is bounded",
    "longPollingEnable": "pulls that ask for it are always held",
    "traceTopicEnable": "message trace comes with a later version",
    "enableConsumeQueueExt": "extended consume queues are not supported",
    "enableDLegerCommitLog": "there is no DLedger; replication is brokerRole and brokerId",
}


HINTS: dict[str, str] = {
    **{name: f"that is RocketMQ's name, here it is {translation.key}" for name, translation in KEYS.items()},
    "maxLag": "that is a field of a BrokerCluster, here it is replication.max_lag_s",
}
"""The hint for keys that have another name here, by the name that users know."""


def read(path: str) -> tuple[ConfigLayer, list[str], str | None]:
    """Return the translated values of a broker.conf, a notice for every key without effect, and storePathCommitLog."""
    values: dict[str, object] = {}
    places: dict[str, str] = {}
    notices = []
    pairs = {name: (value, line) for name, value, line in _lines(read_text(path))}
    for name, (value, line) in pairs.items():
        place = f"{path}:{line}"
        if name == "aclEnable" and value.lower() == "true":
            raise ConfigError(
                f"{place}: aclEnable=true: {_ACL}, and until then every client may do everything; "
                "set it to false and restrict the network"
            )
        translation = KEYS.get(name)
        if translation is None:
            reason = WITHOUT_MEANING.get(name, "it is not known")
            notices.append(f"{place}: {name} has no meaning here; {reason}")
            continue
        values[translation.key] = translated(name, value, place)
        places[translation.key] = f"{place}: {name}={value[:80]}"
    return ConfigLayer(values, places), notices, pairs[_COMMIT_LOG][0] if _COMMIT_LOG in pairs else None


def check_commit_log(path: str, folder: str, root: str) -> None:
    """Raise ConfigError unless storePathCommitLog is the folder in which a store with this root keeps its log."""
    ours = filenames.commit_log(absolute(root))
    if absolute(folder) != ours:
        raise ConfigError(
            f"{path}: {_COMMIT_LOG}={folder}: the commit log stands in {ours}, always under storePathRootDir; "
            f"move or mount it there and take the key out"
        )


def absolute(folder: str) -> str:
    """Return the absolute path without `~`, `..` and a slash at the end."""
    return os.path.abspath(os.path.expanduser(folder))


def translated(name: str, value: str, place: str) -> str:
    """Return the converted value of a RocketMQ key; ConfigError when it is invalid."""
    try:
        return KEYS[name].ours(value)
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"{place}: {name}: expected a whole number, found {value[:80]!r}") from error


def rendered(config: Mapping[str, object]) -> dict[str, str]:
    """Return the values (by dotted key) with RocketMQ's names and units; keys without such a name are unchanged."""
    names = {translation.key: name for name, translation in KEYS.items()}
    result = {}
    for key, value in config.items():
        text = ";".join(value) if isinstance(value, tuple) else str(value)
        if isinstance(value, bool):
            text = text.lower()
        elif isinstance(value, float) and value.is_integer():
            text = str(int(value))
        name = names.get(key)
        result[name or key] = KEYS[name].theirs(text) if name else text
    return result


def parse(text: str) -> dict[str, str]:
    """Return the pairs of a properties text: `key=value` or `key: value`; `#` and `!` begin comments, `\\` joins
    lines.
    """
    return {name: value for name, value, _ in _lines(text)}


def _lines(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield key, value and the number of the line where the pair begins."""
    pending, begun = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        begun = begun if pending else number
        line = pending + raw.strip()
        pending = ""
        if not line or line[0] in "#!":
            continue
        if line.endswith("\\"):
            pending = line[:-1]
            continue
        at = min((line.find(mark) for mark in "=:" if mark in line), default=len(line))
        yield line[:at].strip(), line[at + 1 :].strip(), begun
