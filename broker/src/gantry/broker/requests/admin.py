"""Requests about the broker itself: runtime information and configuration.

GET_BROKER_RUNTIME_INFO (28) is a table of texts with RocketMQ's keys, because `mqadmin`, the dashboard and the exporter
parse them.  Keys of parts that GantryMQ does not have (thread pools, timers) have the value that means idle.
GET_BROKER_CONFIG (26) returns `name=value` lines with RocketMQ's names where it has one.  UPDATE_BROKER_CONFIG (25)
takes the same lines and changes hot keys only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry.append.acks import LATENCY_BOUNDS_S, Acks
from gantry.append.batch import Appender
from gantry.broker.meters.puttimes import distributed
from gantry.broker.meters.rates import Rates
from gantry.broker.settings import brokerconf
from gantry.broker.settings.live import LiveConfig
from gantry.broker.settings.sources import flat
from gantry.clock import Clock
from gantry.errors import ConfigError, Refusal
from gantry.leaves.frames import VERSION, Command
from gantry.produce.send import SendHandler
from gantry.store.store import Store
from gantry.wire import bodies
from gantry.wire.codes import ResponseCode
from gantry.wire.command import refusal, reply

if TYPE_CHECKING:
    from gantry.transport.connection import Connection

VERSION_TEXT = "V5_3_3"  # RocketMQ's name of VERSION; tools print it
_POOLS = ("send", "pull", "litePull", "query", "ack")
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


class AdminHandlers:
    """Handlers that read the parts, and change only the hot configuration."""

    def __init__(
        self,
        live: LiveConfig,
        store: Store,
        appender: Appender,
        acks: Acks,
        sending: SendHandler,
        rates: Rates,
        clock: Clock,
    ) -> None:
        self._live = live
        self._store = store
        self._appender = appender
        self._acks = acks
        self._sending = sending
        self._rates = rates
        self._clock = clock
        self._started_ms = clock.now_ms()

    def runtime_info(self, connection: Connection, command: Command) -> Command:
        """Answer 28 with the table of texts."""
        table = self._identity() | self._counters() | self._store_figures() | _idle()
        return reply(command, body=bodies.dumps({"table": table}))

    def get_config(self, connection: Connection, command: Command) -> Command:
        """Answer 26 with the configuration as `name=value` lines."""
        values = brokerconf.rendered(flat(self._live.current))
        text = "".join([f"{name}={value}\n" for name, value in sorted(values.items())])
        version = bodies.dumps(self._live.version.to_json()).decode()
        return reply(command, ext={"version": version}, body=text.encode())

    def update_config(self, connection: Connection, command: Command) -> Command:
        """Serve 25: change hot keys, all or none."""
        try:
            changes = {}
            for name, value in brokerconf.parse(command.body.decode("utf-8")).items():
                known = brokerconf.KEYS.get(name)
                changes[known.key if known else name] = (
                    brokerconf.translated(name, value, "request") if known else value
                )
        except (ConfigError, UnicodeDecodeError) as error:
            return reply(command, ResponseCode.INVALID_PARAMETER, str(error))
        if not changes:
            return refusal(command, Refusal(ResponseCode.INVALID_PARAMETER, "no key=value line in the body"))
        refused = self._live.update(changes, self._clock.now_ms())
        return reply(command) if refused is None else refusal(command, refused)

    def _identity(self) -> dict[str, str]:
        up_s = max(0, self._clock.now_ms() - self._started_ms) // 1000
        minutes, seconds = divmod(up_s, 60)
        hours, minutes = divmod(minutes, 60)
        days, hours = divmod(hours, 24)
        return {
            "brokerVersionDesc": VERSION_TEXT,
            "brokerVersion": str(VERSION),
            "brokerName": self._live.current.name,
            "bootTimestamp": str(self._started_ms),
            "runtime": f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]",
            "brokerActive": "true",
        }

    def _counters(self) -> dict[str, str]:
        rates = self._rates
        put, put_bytes = self._appender.messages, self._appender.bytes
        table = {
            "putTps": rates.per_second("put"),
            "getFoundTps": rates.per_second("found"),
            "getMissTps": rates.per_second("missed"),
            "getTotalTps": rates.per_second("found", "missed"),
            "getTransferredTps": rates.per_second("got"),
            "getTransferedTps": rates.per_second("got"),
            "putMessageTimesTotal": str(max(1, put)),
            "putMessageFailedTimes": str(sum(self._sending.refused.values())),
            "putMessageSizeTotal": str(put_bytes),
            "putMessageAverageSize": f"{put_bytes / max(1, put):.1f}",
            "putMessageDistributeTime": self._distribution(),
            "putLatency99": f"{self._quantile(0.99):.2f}",
            "putLatency999": f"{self._quantile(0.999):.2f}",
        }
        for name, counter in (("Put", "put"), ("Get", "got")):
            table |= {
                f"msg{name}TotalYesterdayMorning": str(rates.yesterday_morning[counter]),
                f"msg{name}TotalTodayMorning": str(rates.today_morning[counter]),
                f"msg{name}TotalTodayNow": str(rates.total(counter)),
            }
        return table

    def _store_figures(self) -> dict[str, str]:
        stats = self._store.stats()
        total, free = stats.disk_total_bytes, stats.disk_free_bytes
        return {
            "commitLogMinOffset": str(stats.log_start),
            "commitLogMaxOffset": str(stats.written),
            "commitLogDiskRatio": f"{stats.disk_used:.4f}",
            "consumeQueueDiskRatio": f"{stats.disk_used:.4f}",
            "commitLogDirCapacity": f"Total : {_human(total)}, Free : {_human(free)}.",
            "remainHowManyDataToFlush": _human(stats.written - stats.flushed),
            "dispatchBehindBytes": str(stats.confirmed - stats.dispatched),
            "earliestMessageTimeStamp": str(stats.oldest_ms),
        }

    def _distribution(self) -> str:
        return "".join([f"[{name}]:{count} " for name, count in distributed(self._acks.latencies).items()])

    def _quantile(self, share: float) -> float:
        """Return an upper bound in ms of the time that this share of the messages waited at most."""
        latencies = self._acks.latencies
        left = sum(latencies) * share
        for bound, count in zip((*LATENCY_BOUNDS_S, LATENCY_BOUNDS_S[-1]), latencies, strict=True):
            left -= count
            if left <= 0:
                return bound * 1000 if sum(latencies) else 0.0
        return LATENCY_BOUNDS_S[-1] * 1000


def _idle() -> dict[str, str]:
    """Return RocketMQ's keys of thread pools, timers and page-cache locks, with values that mean idle."""
    table = {
        "putMessageEntireTimeMax": "0",
        "getMessageEntireTimeMax": "0",
        "dispatchMaxBuffer": "0",
        "remainTransientStoreBufferNumbs": str(2**31 - 1),
        "pageCacheLockTimeMills": "0",
        "startAcceptSendRequestTimeStamp": "0",
        "timerReadBehind": "0",
        "timerOffsetBehind": "0",
        "timerCongestNum": "0",
        "timerEnqueueTps": "0.0",
        "timerDequeueTps": "0.0",
        "EndTransactionQueueSize": "0",
        "EndTransactionThreadPoolQueueCapacity": "0",
    }
    for pool in _POOLS:
        table |= {
            f"{pool}ThreadPoolQueueSize": "0",
            f"{pool}ThreadPoolQueueCapacity": "0",
            f"{pool}ThreadPoolQueueHeadWaitTimeMills": "0",
        }
    return table


def _human(count: int) -> str:
    """Return the text of RocketMQ's `humanReadableByteCount`: one decimal from KiB on."""
    if count < 1024:
        return f"{count} B"
    value = float(count)
    number = 0
    while value >= 1024 and number < len(_UNITS) - 1:
        value /= 1024
        number += 1
    return f"{value:.1f} {_UNITS[number]}"
