"""The API server in memory does what the real one does, where tests lean on it."""

from __future__ import annotations

from typing import Any

import pytest

from testkit.kube.fakestore import APPLY, HISTORY_MAX, MERGE, NoAnswerError, Request, StatusError, Store

PODS = "/api/v1/namespaces/n/pods"
POD = f"{PODS}/p"


def patch(path: str = POD, kind: str = MERGE, **body: Any) -> Request:
    return Request("PATCH", path, body, kind)


def store() -> Store:
    made = Store()
    made.write(Request("POST", PODS, {"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"x": 1}}))
    return made


def refused(made: Store, request: Request) -> int:
    with pytest.raises(StatusError) as error:
        made.write(request)
    return error.value.status


def test_a_patch_with_another_version_is_a_conflict_and_one_that_changes_nothing_keeps_it() -> None:
    made = store()
    version = made.get(POD)["metadata"]["resourceVersion"]
    made.write(patch(spec={"x": 1}))
    assert made.get(POD)["metadata"]["resourceVersion"] == version
    made.write(patch(spec={"x": 2}))
    assert refused(made, patch(metadata={"resourceVersion": version}, spec={"x": 3})) == 409
    assert made.get(POD)["metadata"]["generation"] == 2


def test_a_status_has_a_way_of_its_own_and_moves_no_generation() -> None:
    made = store()
    made.write(patch(status={"phase": "Running"}))
    assert "status" not in made.get(POD)
    made.write(patch(f"{POD}/status", status={"phase": "Running"}, spec={"x": 9}))
    found = made.get(POD)
    assert (found["status"], found["spec"], found["metadata"]["generation"]) == ({"phase": "Running"}, {"x": 1}, 1)


def test_an_apply_makes_what_is_not_there_and_a_merge_does_not() -> None:
    made = store()
    assert refused(made, patch(f"{PODS}/q", spec={})) == 404
    made.write(patch(f"{PODS}/q", APPLY, metadata={"name": "q"}, spec={}))
    assert refused(made, Request("POST", PODS, {"metadata": {"name": "q"}})) == 409


def test_a_delete_means_one_uid_and_a_pod_waits_until_somebody_lets_it_go() -> None:
    made = store()
    assert refused(made, Request("DELETE", POD, {"preconditions": {"uid": "other"}})) == 409
    made.write(Request("DELETE", POD, {"preconditions": {"uid": made.get(POD)["metadata"]["uid"]}}))
    assert "deletionTimestamp" in made.get(POD)["metadata"]
    made.remove(POD)
    assert refused(made, Request("DELETE", POD, {})) == 404


def test_what_an_object_owned_goes_with_it() -> None:
    made = store()
    owner = {"uid": made.get(POD)["metadata"]["uid"]}
    made.put(f"{PODS}/child", {"metadata": {"name": "child", "ownerReferences": [owner]}})
    made.remove(POD)
    assert not made.documents


def test_a_list_is_of_one_namespace_or_of_all_and_by_labels() -> None:
    made = store()
    for folder in (PODS, "/api/v1/pods"):
        assert len(made.listed(folder)) == len(made.listed(folder, "a=b")) == len(made.listed(folder, "a")) == 1
        assert not made.listed(folder, "a=c") and not made.listed(folder, "a=b,c")
    assert not made.listed("/api/v1/namespaces/other/pods") and not made.listed("/api/v1/services")


def test_events_are_told_in_order_and_forgotten_in_the_end() -> None:
    made = store()
    start = made.version
    made.write(patch(spec={"x": 2}))
    made.remove(POD)
    assert [each.kind for each in made.since(start)] == ["MODIFIED", "DELETED"]
    for number in range(HISTORY_MAX):
        made.put(POD, {"metadata": {}, "spec": {"x": number}})
    with pytest.raises(StatusError, match="410"):
        made.since(start)


@pytest.mark.parametrize(("fault", "done"), [("drop", False), ("lose", True), ("late", False)])
def test_a_write_without_an_answer_was_done_or_not(fault: str, done: bool) -> None:
    made = store()
    made.faults = [fault]
    with pytest.raises(NoAnswerError):
        made.write(patch(spec={"x": 2}))
    assert (made.get(POD)["spec"] == {"x": 2}) is done
    assert made.deliver() == (fault == "late")
    assert (made.get(POD)["spec"] == {"x": 2}) is (fault != "drop")


def test_a_refusal_is_by_kind_or_the_next_ones() -> None:
    made = store()
    made.faults = ["503"]
    assert refused(made, patch(spec={})) == 503
    made.refused["pods"] = 403
    assert refused(made, patch(spec={})) == 403 and refused(made, Request("POST", PODS, {"metadata": {}})) == 403
