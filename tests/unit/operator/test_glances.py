"""What a standby knows of a cluster, so that it may go on at once; and that it learned it by reading alone."""

from __future__ import annotations

import asyncio

from gantry_operator.glances import Glances
from testkit.kube.operatorbench import KEY, PATH, Bench

SECRET = "/api/v1/namespaces/messaging/secrets/orders-ha"


def glanced(bench: Bench) -> float | None:
    return asyncio.run(Glances(bench.server, bench.loops).once(KEY))


def test_a_standby_follows_the_groups_that_the_leader_cares_for_and_writes_nothing() -> None:
    bench = Bench().works()
    key = bench.loops.kept.pop(KEY)
    glanced(bench)
    assert bench.loops.kept == {KEY: key} and not bench.server.writes


def test_a_cluster_of_which_the_leader_has_made_nothing_yet_is_looked_at_again_soon() -> None:
    bench = Bench()
    assert glanced(bench) == 5.0 and not bench.loops.kept and not bench.server.writes
    bench.works()
    del bench.server.documents[SECRET]["data"]["key"]
    bench.loops.kept.clear()
    assert glanced(bench) == 5.0 and not bench.loops.kept


def test_a_cluster_that_goes_or_is_gone_is_followed_no_longer() -> None:
    bench = Bench().works()
    bench.server.documents[PATH]["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z"
    assert glanced(bench) == 60.0 and not bench.loops.kept
    del bench.server.documents[PATH]
    assert glanced(bench) is None
