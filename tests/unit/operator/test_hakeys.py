"""The key of a cluster: made once, never replaced because its Secret is broken, and told where it is lost."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping

import pytest

from gantry_operator.hakeys import REPLACED
from gantry_operator.kube import KubeError
from gantry_operator.settings import OnUpgrade
from gantry_operator.snapshot import Answer, GroupSeen
from testkit.kube.operatorbench import KEY, PATH, PODS, Bench

SECRET = "/api/v1/namespaces/messaging/secrets/orders-ha"
BROKEN = {
    "no field": {},
    "another field": {"other": "eA=="},
    "no base64": {"key": "%%%"},
    "empty": {"key": ""},
    "blank": {"key": base64.b64encode(b"\n \n").decode()},
    "short": {"key": base64.b64encode(b"short").decode()},
    "three lines": {"key": base64.b64encode(b"\n".join([b"k" * 32] * 3)).decode()},
}


def remade(bench: Bench) -> bytes:
    """An operator that knows nothing, as after a restart of all of them."""
    key = bench.loops.kept.pop(KEY)
    bench.upgrade("image:1", OnUpgrade.ONE_BY_ONE)
    return key


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_a_secret_that_cannot_be_used_is_named_and_the_loop_goes_on_with_the_last_key(data: dict[str, str]) -> None:
    bench = Bench().works()
    key = bench.loops.kept[KEY]
    bench.server.documents[SECRET]["data"] = data
    bench.server.changed(config={"pull.count_max": "64"})
    bench.once()
    assert bench.loops.kept[KEY] == key and bench.server.documents[SECRET]["data"] == data
    assert bench.conditions()["Stalled"] == ("True", "SecretInvalid")
    assert "Secret orders-ha" in bench.said("Stalled") and "it is made again as it was" in bench.said("Stalled")
    assert bench.conditions()["Ready"][0] == "False" and bench.conditions()["FailoverPossible"][0] == "True"
    assert not [each for each in bench.server.deeds if each.startswith("delete")], "a pod could not come back"
    del bench.server.documents[SECRET]
    bench.once()
    assert base64.b64decode(bench.server.documents[SECRET]["data"]["key"]) == key
    assert bench.conditions()["Stalled"] == ("False", "NoError")


def test_a_secret_that_cannot_be_used_and_was_never_known_leaves_no_loop_and_says_so() -> None:
    bench = Bench().works()
    bench.server.documents[SECRET]["data"] = {}
    remade(bench)
    bench.once()
    assert not bench.loops.kept and bench.conditions()["Stalled"] == ("True", "SecretInvalid")
    assert bench.conditions()["FailoverPossible"] == ("False", "NotWatched")
    assert "b0 has no failover loop: Secret orders-ha: it has no field 'key'" in bench.said("FailoverPossible")
    assert bench.server.deeds == ["merge status"]


@pytest.mark.parametrize("status", [403, 500])
def test_a_secret_that_cannot_be_read_takes_no_loop_away(status: int) -> None:
    bench = Bench().works()
    key = bench.loops.kept[KEY]
    bench.upgrade("image:1", OnUpgrade.ONE_BY_ONE)  # its loops know the key, as a standby's do
    bench.server.unread[SECRET] = status
    if status == 500:
        with pytest.raises(KubeError):
            bench.once()
        assert bench.conditions()["Ready"][0] == "True", "it is asked again, and people are not woken for it"
    else:
        bench.once()
        assert bench.conditions()["Ready"][0] == "False"
        assert f"Secret orders-ha cannot be read: GET {SECRET}: {status}" in bench.said("Stalled")
    assert bench.loops.kept[KEY] == key


def test_a_standby_that_begins_to_lead_makes_a_lost_secret_again_as_it_was() -> None:
    bench = Bench().works()
    key = bench.loops.kept[KEY]
    del bench.server.documents[SECRET]
    bench.upgrade("image:1", OnUpgrade.ONE_BY_ONE)
    bench.once()
    assert base64.b64decode(bench.server.documents[SECRET]["data"]["key"]) == key
    assert REPLACED not in bench.server.documents[SECRET]["metadata"].get("annotations", {})


def test_a_lost_key_that_nobody_knows_is_replaced_and_told_until_every_broker_has_it() -> None:
    bench = Bench().works()
    del bench.server.documents[SECRET]
    former = remade(bench)
    answering = {0}

    async def look(seen: GroupSeen, key: bytes) -> Mapping[int, Answer]:
        return {ordinal: answer for ordinal, answer in (await real(seen, key)).items() if ordinal in answering}

    real = bench.doors.look
    bench.doors.look = look  # type: ignore[method-assign]
    bench.server.changed(config={"pull.count_max": "64"})
    bench.once()
    assert bench.loops.kept[KEY] != former and bench.server.documents[SECRET]["metadata"].get("annotations")
    for _ in range(2):
        assert bench.conditions()["Stalled"] == ("True", "KeyReplaced") and bench.conditions()["Ready"][0] == "False"
        assert "orders-b0-1, orders-b0-2 cannot be asked" in bench.said("Stalled")
        assert "within two minutes" in bench.said("Stalled"), "it says what to do"
        assert not [each for each in bench.server.deeds if each.startswith("delete")], "nobody is taken away meanwhile"
        bench.upgrade("image:1", OnUpgrade.ONE_BY_ONE)  # the master next knows it as well
        bench.once()
    answering |= {1, 2}
    bench.once()
    assert bench.conditions()["Stalled"] == ("False", "NoError")
    assert "delete orders-b0-1" in bench.server.deeds


@pytest.mark.parametrize(
    ("state", "is_held"),
    [
        ({"running": {"startedAt": "2026-11-21T09:59:00Z"}}, True),
        ({"running": {"startedAt": "2026-11-21T10:01:00Z"}}, False),
        ({"waiting": {"reason": "CrashLoopBackOff"}}, False),
    ],
)
def test_only_a_broker_that_is_older_than_the_new_key_can_lack_it(state: dict[str, object], is_held: bool) -> None:
    """A pod that crashes months after the key was replaced must not hold every change of the cluster."""
    bench = Bench().works()
    about = bench.server.documents[SECRET]["metadata"]
    about["annotations"] = {REPLACED: "true"}
    about["creationTimestamp"] = "2026-11-21T10:00:00Z"
    bench.server.documents[f"{PODS}/orders-b0-1"]["status"]["containerStatuses"] = [{"name": "broker", "state": state}]
    real = bench.doors.look

    async def look(seen: GroupSeen, key: bytes) -> Mapping[int, Answer]:
        return {ordinal: answer for ordinal, answer in (await real(seen, key)).items() if ordinal != 1}

    bench.doors.look = look  # type: ignore[method-assign]
    bench.once()
    assert (bench.conditions()["Stalled"] == ("True", "KeyReplaced")) is is_held


def test_a_new_key_is_no_news_where_no_broker_runs() -> None:
    bench = Bench().works()
    del bench.server.documents[SECRET]
    for pod in [each for each in bench.server.documents if each.startswith(f"{PODS}/orders-b0")]:
        del bench.server.documents[pod]
    remade(bench)
    bench.once()
    assert not bench.server.documents[SECRET]["metadata"].get("annotations") and KEY in bench.loops.kept


@pytest.mark.parametrize("is_new", [True, False])
def test_where_pods_cannot_be_listed_a_set_or_a_register_says_that_brokers_may_run(is_new: bool) -> None:
    bench = Bench()
    if not is_new:
        bench.works()
        del bench.server.documents[SECRET]
        remade(bench)
    bench.server.unlisted["pods"] = 403
    bench.once()
    assert (REPLACED in bench.server.documents[SECRET]["metadata"].get("annotations", {})) is not is_new


def test_during_a_change_of_the_key_the_first_of_two_lines_is_asked_with_and_both_are_kept() -> None:
    bench = Bench().works()
    both = b"o" * 32 + b"\n" + b"n" * 32 + b"\n"
    bench.server.documents[SECRET]["data"]["key"] = base64.b64encode(both).decode()
    bench.once()
    assert bench.loops.kept[KEY] == b"o" * 32
    del bench.server.documents[SECRET]
    bench.once()
    assert base64.b64decode(bench.server.documents[SECRET]["data"]["key"]) == both


def test_no_secret_is_made_for_a_cluster_that_goes_or_cannot_be_read() -> None:
    for change in ("going", "unreadable"):
        bench = Bench().works()
        del bench.server.documents[SECRET]
        remade(bench)
        if change == "going":
            bench.server.documents[PATH]["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z"
        else:
            bench.server.documents[PATH]["spec"]["brokers"]["profile"] = 3
        bench.once()
        assert SECRET not in bench.server.documents and not bench.loops.kept
        assert bench.conditions()["FailoverPossible"] == ("False", "NotWatched")


def test_a_secret_that_may_not_be_made_is_told_and_everything_else_goes_on() -> None:
    bench = Bench()

    async def create(document: dict[str, object]) -> bool:
        raise KubeError("POST secrets", 403, "as the test wants it")

    bench.server.create = create  # type: ignore[method-assign]
    asyncio.run(bench.operator.once(KEY))
    assert "apply ConfigMap" in bench.server.deeds and bench.server.deeds.count("apply StatefulSet") == 1
    assert bench.conditions()["Stalled"] == ("True", "SecretRefused")
    assert "Secret orders-ha is missing and cannot be made" in bench.said("Stalled")
