"""Every panel and every alert, asked of a real Prometheus that scrapes a real group under load.

Prometheus comes out of Debian's package (`testkit.prometheus`); the group is three processes on this machine.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from gantry.client.consumer import Consumer, ConsumerSettings, StartFrom
from gantry.client.producer import Message, Producer
from gantry.client.transaction import Outcome, Rollback, TransactionProducer
from gantry.errors import GantryError
from gantry_operator.monitoring import alerts, dashboards, proxyboard, queuesboard
from testkit import stockdashboards
from testkit.grpcclient import GrpcClient, message
from testkit.localplay import Cluster
from testkit.mnscalls import MnsCaller
from testkit.process import GantryProcess
from testkit.prometheus import Prometheus, program, scraping
from testkit.sources import ROOT

PATIENCE_S = 120
RULES = ROOT / "charts/gantrymq/alerts/gantrymq.yaml"
BOARDS = (*dashboards.ALL, proxyboard.BOARD, queuesboard.BOARD)
ALERTS = [*(each for _, group in alerts.GROUPS for each in group), *proxyboard.ALERTS, *queuesboard.ALERTS]
# Panels whose series are there only when something is wrong: no load of this test makes it so, or may.
ONLY_IN_TROUBLE = {
    "Outcome unknown, and refused": "no send is refused while the group is well (the late ones have a series)",
    "Members that disagree": "members of one group would have to subscribe differently",
    "Trouble": "brokers would have to be away, or a proxy full",
    "Answers of the server's fault": "brokers would have to be away, or a server full",
    "Refused ends": "somebody would have to forge the end of a transaction",
}


async def load(name_server: str, grpc_port: int, seconds: float) -> None:
    """Something of everything that panels show."""
    until = time.monotonic() + seconds

    async def fails(message: Message) -> None:
        raise ValueError("this consumer cannot handle anything")

    async def handles(message: Message) -> None:
        await asyncio.sleep(0.2)  # slower than the producer, so that there is a lag

    first = ConsumerSettings(start_from=StartFrom.FIRST, redeliveries_max=1, commit_every_s=0.5)
    async with (
        Producer("orders-service", nameserver=name_server) as producer,
        TransactionProducer("payments", lambda message: Outcome.UNKNOWN, nameserver=name_server) as payments,
        Consumer("slow", nameserver=name_server, subscription={"orders": "*"}, listener=handles, settings=first),
        Consumer("broken", nameserver=name_server, subscription={"orders": "*"}, listener=fails, settings=first),
        Consumer("poppers", nameserver=name_server, subscription={"orders": "*"}, listener=fails, mode="pop"),
        GrpcClient(grpc_port) as client,
    ):
        while time.monotonic() < until:
            with suppress(GantryError):
                await producer.send(Message("orders", b"an order"))
                for topic in ("orders", "no-such-topic"):
                    await client.send(message(topic))
                await producer.send(Message("orders", b"later", delay_s=1.0))
                await producer.send(Message("orders", b"much later", delay_level=5))
                async with payments.transaction(Message("payments", b"paid")):
                    pass
                async with payments.transaction(Message("payments", b"not paid")):
                    raise Rollback
            with suppress(ValueError, GantryError):
                async with payments.transaction(Message("payments", b"who knows")):
                    raise ValueError
            await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, str]]:
    """Prometheus over a group that has been under load for a while, and the group's name server."""
    folder = tmp_path_factory.mktemp("monitoring")
    flags = ("--groups", "1", "--replicas", "3", "--set", "transactions.check_interval_s=1")
    with Cluster(folder / "cluster", *flags, "--set", "transactions.immunity_s=1") as cluster:
        survey = cluster.survey()
        targets = [f"{survey.layout.address(who)}:{survey.layout.ports.http}" for who in survey.layout.members()]
        program, ports = (sys.executable, "-m", "gantry.cli.main"), ("--bind", "127.0.0.1", "--http-port", "0")
        where = ("--namesrv", cluster.name_server, *ports)
        with (
            GantryProcess(folder / "proxy", command=[*program, "proxy", *where, "--grpc-port", "0"]) as proxy,
            GantryProcess(folder / "queues", command=[*program, "queues", *where, "--queues-port", "0"]) as queues,
        ):
            targets += ["{}:{}".format(*each.addresses["http"]) for each in (proxy, queues)]
            with MnsCaller(queues.addresses["queues"]) as caller:
                assert caller.put("letters").status == 201
                assert caller.call("GET", "/queues/letters/messages").status == 404
            with scraping(folder, targets, job="rocketmq", labels={"Cluster": "local", "Env": "test"}) as prometheus:
                asyncio.run(load(cluster.name_server, proxy.addresses["grpc"][1], 25))
                yield prometheus, cluster.name_server


def answered(text: str) -> str:
    """A panel's query with the variables as a person leaves them."""
    for name in ("instance", "cluster", "topic", "group"):
        text = text.replace(f"${name}", ".*")
    return text.replace("$__rate_interval", "20s")


@pytest.mark.parametrize(
    ("title", "text"),
    [(panel.title, query.text) for board in BOARDS for panel in board.panels for query in panel.queries],
)
def test_a_panel_shows_something(scraped: tuple[Prometheus, str], title: str, text: str) -> None:
    prometheus, _ = scraped
    found = prometheus.query(answered(text))
    assert found or title in ONLY_IN_TROUBLE, f"{title}: {text} has no series"


@pytest.mark.parametrize("query", stockdashboards.ALL)
def test_a_dashboard_that_others_made_for_rocketmq_shows_something(scraped: tuple[Prometheus, str], query: str) -> None:
    prometheus, _ = scraped
    found, reason = prometheus.query(query), stockdashboards.silent(query)
    assert bool(found) == (reason is None), f"{query}: {found}; {reason}"


def test_what_all_members_of_a_group_have_is_counted_once(scraped: tuple[Prometheus, str]) -> None:
    prometheus, _ = scraped
    for name in ("rocketmq_messages_in_total", "rocketmq_producer_offset"):
        assert len(prometheus.query(f'{name}{{topic="orders"}}')) == 1
    assert len(prometheus.query("rocketmq_topic_number")) == 3


def test_a_variable_has_values(scraped: tuple[Prometheus, str]) -> None:
    prometheus, _ = scraped
    for board in BOARDS:
        for variable in board.variables:
            inside = variable.query.removeprefix("label_values(").removesuffix(")")
            metric, _, label = inside.rpartition(", ")
            assert prometheus.query(answered(f"count by ({label}) ({metric})")), (board.uid, variable.name)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda each: each.name)
def test_an_alert_can_be_asked(scraped: tuple[Prometheus, str], alert: alerts.Alert) -> None:
    prometheus, _ = scraped
    prometheus.query(alert.text)  # ValueError with Prometheus' own words if it cannot


def test_the_rules_fire_when_they_should_and_not_before(tmp_path: Path) -> None:
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(_plays()))
    done = subprocess.run(
        [str(program("promtool")), "test", "rules", str(tmp_path / "tests.yaml")],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _plays() -> dict[str, object]:
    """For each rule a story in which it fires at the second instant, and not yet at the first."""
    here = 'instance="b"'
    stories: dict[str, tuple[dict[str, str], str, str]] = {
        "GantryBrokerRefusesWrites": ({f'gantry_write_gate_shut{{{here},reason="disk full"}}': "1+0x60"}, "30s", "2m"),
        "GantryDiskFillsUp": ({f"gantry_disk_used_ratio{{{here}}}": "0.9+0x60"}, "5m", "12m"),
        "GantryOutcomesUnknown": ({f"gantry_messages_ack_late_total{{{here}}}": "0+3x60"}, "3m", "15m"),
        "GantrySegmentStuck": ({f'gantry_owed_stuck{{{here},kind="halves"}}': "1+0x60"}, "10m", "20m"),
        "GantryNotRegistered": ({f'gantry_registered{{{here},name_server="n:9876"}}': "0+0x60"}, "1m", "5m"),
        "GantryLoopLags": (
            {
                f'gantry_loop_lag_seconds_bucket{{{here},le="0.1"}}': "0+0x60",
                f'gantry_loop_lag_seconds_bucket{{{here},le="1"}}': "0+60x60",
                f'gantry_loop_lag_seconds_bucket{{{here},le="+Inf"}}': "0+60x60",
            },
            "5m",
            "20m",
        ),
        "GantryTooFewInSync": (_set(1, 2), "30s", "3m"),
        "GantryAtMinimumInSync": (_set(2, 2), "10m", "20m"),
        "GantryPermitRunsOut": (
            {f"gantry_permit_seconds{{{here}}}": "0+0x60", f"gantry_group_leads{{{here}}}": "1+0x60"},
            "0s",
            "2m",
        ),
        "GantryMastershipFlaps": ({f"gantry_group_epoch{{{here}}}": "1+1x60"}, "3m", "10m"),
        "GantryMessagesLost": ({f"gantry_replication_lost_messages_total{{{here}}}": "0x10 40x60"}, "5m", "12m"),
        "GantryDeadLetters": ({f'gantry_dead_letters_total{{{here},consumer_group="g"}}': "0x10 5x60"}, "5m", "12m"),
        "GantryLagGrows": (
            {f'gantry_group_lag_messages{{{here},consumer_group="g",topic="t"}}': "20000+100x60"},
            "10m",
            "40m",
        ),
        "GantryGroupDisagrees": ({f'gantry_subscription_disagreements{{{here},group="g"}}': "2+0x60"}, "2m", "10m"),
        "GantryReviveLate": (
            {f'rocketmq_pop_revive_latency_milliseconds{{{here},queue_id="1"}}': "40000+0x60"},
            "30s",
            "3m",
        ),
        "GantryLeasesNearLimit": (
            {
                f"gantry_pop_open_messages{{{here}}}": "900000+0x60",
                f"gantry_pop_open_messages_limit{{{here}}}": "1000000+0x60",
            },
            "5m",
            "15m",
        ),
        "GantryProxiesGone": ({f'rocketmq_proxy_up{{{here},job="p"}}': "1 1 1 1 stale"}, "3m", "10m"),
        "GantryProxyReachesNoBroker": ({f"gantry_proxy_ready{{{here}}}": "0+0x60"}, "30s", "3m"),
        "GantryProxyTrouble": (
            {f'gantry_proxy_requests_total{{{here},rpc="SendMessage",code="INTERNAL_SERVER_ERROR"}}': "0+60x60"},
            "4m",
            "12m",
        ),
        "GantryProxyRefusesConnections": (
            {f"gantry_proxy_connections_refused_total{{{here}}}": "0x10 5x60"},
            "5m",
            "12m",
        ),
        "GantryQueuesGone": ({f'gantry_queues_ready{{{here},job="q"}}': "1 1 1 1 stale"}, "3m", "10m"),
        "GantryQueuesReachNoBroker": ({f"gantry_queues_ready{{{here}}}": "0+0x60"}, "30s", "3m"),
        "GantryQueuesTrouble": (
            {f'gantry_queues_requests_total{{{here},status="500",code="InternalError"}}': "0+60x60"}, "4m", "12m",
        ),
        "GantryQueuesRefuseConnections": (
            {f"gantry_queues_connections_refused_total{{{here}}}": "0x10 5x60"}, "5m", "12m",
        ),
        "GantryTransactionsGivenUp": (
            {f'gantry_transactions_moved_total{{{here},kind="given_up"}}': "0x10 2x60"},
            "5m",
            "12m",
        ),
        "GantryTransactionOld": ({f"gantry_transaction_oldest_age_seconds{{{here}}}": "4000+60x60"}, "2m", "10m"),
        "GantrySinkUndecided": ({f"gantry_sink_undecided_oldest_age_seconds{{{here}}}": "7300+60x60"}, "2m", "10m"),
        "GantrySinksNearLimit": (
            {f"gantry_sinks{{{here}}}": "3300+0x60", f"gantry_sinks_limit{{{here}}}": "4096+0x60"},
            "5m",
            "15m",
        ),
    }
    assert stories.keys() == {each.name for each in ALERTS}
    return {
        "rule_files": [str(RULES)],
        "evaluation_interval": "30s",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": series, "values": values} for series, values in inputs.items()],
                "promql_expr_test": [fires(name, silent, 0), fires(name, firing, 1)],
            }
            for name, (inputs, silent, firing) in stories.items()
        ],
    }


def _set(there: int, needed: int) -> dict[str, str]:
    return {
        'gantry_in_sync_members{instance="b"}': f"{there}+0x60",
        'gantry_in_sync_members_needed{instance="b"}': f"{needed}+0x60",
    }


def fires(name: str, instant: str, times: int) -> dict[str, object]:
    text = f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)'
    return {"expr": text, "eval_time": instant, "exp_samples": [{"labels": "{}", "value": times}]}
