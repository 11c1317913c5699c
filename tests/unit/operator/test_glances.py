"""What a standby knows of a cluster, so that it may go on at once; and that it learned it by reading alone."""

from __future__ import annotations

import asyncio

from gantry_operator.glances import Glances
from testkit.kube.operatorbench import KEY, PATH, PODS, Bench

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


def test_a_standby_follows_a_cluster_that_cannot_be_read_whole_and_whose_pods_cannot_be_listed() -> None:
    bench = Bench().works()
    key = bench.loops.kept.pop(KEY)
    bench.server.documents[PATH]["spec"]["brokers"]["profile"] = "of a later version"
    bench.server.unlisted["pods"] = 403
    assert glanced(bench) == 5.0 and bench.loops.kept == {KEY: key} and not bench.server.writes


def test_a_cluster_that_goes_is_followed_until_its_pods_are_gone() -> None:
    bench = Bench().works()
    bench.server.documents[PATH]["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z"
    assert glanced(bench) == 60.0 and KEY in bench.loops.kept
    for pod in [each for each in bench.server.documents if each.startswith(PODS)]:
        del bench.server.documents[pod]
    assert glanced(bench) == 60.0 and not bench.loops.kept
    del bench.server.documents[PATH]
    assert glanced(bench) is None
