"""Where executors are placed, seen from the driver's volumes."""

from __future__ import annotations

import io
import json
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import unquote

import pytest

from pyspark_gantrymq.jobs import placement
from pyspark_gantrymq.jobs.placement import Api, Driver, PlacementError, complaint, look, mounted

Document = dict[str, Any]
DRIVER = Driver("spark", "archive-driver", "spark-1", executors=2)
PODS = "/api/v1/namespaces/spark/pods"
CLAIMS = "/api/v1/namespaces/spark/persistentvolumeclaims"


def pod(name: str, node: str, *claims: str, why: str = "") -> Document:
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    spec: Document = {"volumes": [*volumes, {"name": "scratch", "emptyDir": {}}]}
    if node:
        spec["nodeName"] = node
    conditions = [{"type": "PodScheduled", "status": "False", "message": why}] if why else []
    return {"metadata": {"name": name}, "spec": spec, "status": {"conditions": conditions}}


class Server:
    """An API server with these documents; executors appear one look after the other."""

    def __init__(self, modes: dict[str, list[str]], *looks: list[Document]) -> None:
        self.asked: list[str] = []
        self._looks = list(looks)
        self._found: dict[str, Document] = {f"{PODS}/archive-driver": pod("archive-driver", "node1", *modes)}
        self._found |= {f"{CLAIMS}/{name}": {"spec": {"accessModes": each}} for name, each in modes.items()}

    def get(self, path: str) -> Document:
        self.asked.append(unquote(path))
        if "?" in path:
            return {"items": self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]}
        return self._found[path]


def test_claims_are_what_a_pod_mounts_and_nothing_else() -> None:
    assert mounted(pod("p", "n", "work", "more")) == {"work", "more"}
    assert mounted({"spec": {}}) == set()


def test_an_executor_on_another_node_is_named_with_the_claim_both_nodes_and_what_to_do() -> None:
    home = pod("archive-driver", "node1", "work")
    said = complaint(home, {"work"}, [pod("exec-1", "node1", "work"), pod("exec-2", "node2", "work")])
    for part in ("claim work", "executor exec-2", "on node node2", "on node node1", "ReadWriteMany", "nodeSelector"):
        assert part in said
    assert "\n" not in said and ". " not in said


def test_an_executor_that_no_node_takes_because_of_its_volume_is_named() -> None:
    waits = pod("exec-1", "", "work", why="3 node(s) didn't match PersistentVolume's node affinity")
    assert "finds no node that can mount it" in complaint(pod("d", "node1", "work"), {"work"}, [waits])


@pytest.mark.parametrize(
    "executor",
    [
        pod("exec-1", "node1", "work"),
        pod("exec-1", "node2"),
        pod("exec-1", "node2", "shared"),
        pod("exec-1", "", "work"),
        pod("exec-1", "", "work", why="0/4 nodes are available: 4 Insufficient memory"),
    ],
)
def test_nobody_complains_of_an_executor_that_shares_nothing_or_is_at_home_or_waits_for_something_else(
    executor: Document,
) -> None:
    assert complaint(pod("d", "node1", "work", "shared"), {"work"}, [executor]) == ""


def test_volumes_of_many_nodes_cost_two_requests_and_no_wait() -> None:
    server = Server({"work": ["ReadWriteMany"]}, [])
    look(server, DRIVER)  # type: ignore[arg-type]
    assert server.asked == [f"{PODS}/archive-driver", f"{CLAIMS}/work"]


def test_the_driver_waits_until_each_of_its_executors_is_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    here, there = pod("exec-1", "node1", "work"), pod("exec-2", "node2", "work")
    server = Server({"work": ["ReadWriteOnce"]}, [], [here], [here, pod("exec-2", "", "work")], [here, there])
    with pytest.raises(PlacementError, match="exec-2 is on node node2"):
        look(server, DRIVER)  # type: ignore[arg-type]
    assert server.asked[-1].endswith("labelSelector=spark-app-selector=spark-1,spark-role=executor")
    here, beside = pod("exec-1", "node1", "work"), pod("exec-2", "node1", "work")
    look(Server({"work": ["ReadWriteOnce"]}, [here], [here, beside]), DRIVER)  # type: ignore[arg-type]


def test_executors_that_are_not_placed_in_time_hold_nobody_up(capsys: pytest.CaptureFixture[str]) -> None:
    look(Server({"work": ["ReadWriteOncePod"]}, []), DRIVER, within_s=0.0)  # type: ignore[arg-type]
    assert "not every executor" in capsys.readouterr().err


class Answers:
    """Instead of urlopen: what the server says, one call after the other."""

    def __init__(self, *answers: Exception | Document) -> None:
        self.left = list(answers)

    def __call__(self, request: Any, **_: object) -> io.BytesIO:
        found = self.left.pop(0)
        if isinstance(found, Exception):
            raise found
        return io.BytesIO(json.dumps(found).encode())


def refusal(code: int) -> HTTPError:
    return HTTPError("https://api", code, "no", Message(), io.BytesIO(b"no"))


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Api:
    (tmp_path / "token").write_text("secret")
    monkeypatch.setattr(placement.ssl, "create_default_context", lambda cafile: None)
    monkeypatch.setattr(placement, "PAUSE_S", 0.0)
    return Api("https://api", tmp_path)


def test_a_server_that_is_busy_or_moving_is_asked_again(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = refusal(503), refusal(429)
    answers = Answers(TimeoutError("slow"), *refusals, ConnectionResetError(), {"kind": "Pod"})
    monkeypatch.setattr(placement.urllib.request, "urlopen", answers)
    assert api.get("/pods") == {"kind": "Pod"} and not answers.left
    assert all(refused.closed for refused in refusals), "each is an answer with a connection of its own"


def test_what_is_refused_or_never_answered_is_said(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers(refusal(403), {"kind": "Pod"}, TimeoutError("slow"))
    monkeypatch.setattr(placement.urllib.request, "urlopen", answers)
    with pytest.raises(HTTPError) as refused:
        api.get("/pods")
    assert refused.value.closed
    assert api.get("/pods") == {"kind": "Pod"}
    monkeypatch.setattr(placement, "PATIENCE_S", 0.0)
    with pytest.raises(TimeoutError):
        api.get("/pods")
