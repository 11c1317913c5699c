"""What the operator's account may do, by what it looks after; and what becomes of it when a right is missing.

`kubectl auth can-i` asks the same question in the same way: a SubjectAccessReview.
"""

from __future__ import annotations

import copy
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from e2e.test_leader import CLUSTERS, begun, home, kinds, made  # noqa: F401
from testkit.kube import binaries
from testkit.kube.api import Document, RefusedError
from testkit.kube.controlplane import ControlPlane
from testkit.kube.operators import ACCOUNT, LEASE, NAMESPACE, Release, Replica
from testkit.kube.registers import NAMESPACE as HOME
from testkit.kube.registers import fresh_name, lease
from testkit.pairplay import until
from testkit.sources import ROOT

REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gantrymq"
WATCHED = {"all": "", "many": "rights-one,rights-two", "one": "rights-one"}
NAMESPACES = ("rights-one", "rights-two", "rights-other")
# What it does where it looks after clusters.
DOES = [
    "gantrymq.io/brokerclusters get list watch patch",
    "gantrymq.io/brokerclusters/status patch",
    "gantrymq.io/brokerclusters/finalizers update",
    "gantrymq.io/brokertopics get list watch patch",
    "gantrymq.io/consumergroups get list watch patch",
    "gantrymq.io/brokertopics/status patch",
    "gantrymq.io/consumergroups/status patch",
    "/configmaps get list create patch delete",
    "/services get list create patch delete",
    "/serviceaccounts get list create patch",
    "/secrets get create patch",
    "/events create patch",
    "/pods get list watch patch delete",
    "/persistentvolumeclaims get list delete",
    "apps/statefulsets get list watch create patch delete",
    "apps/deployments get create patch delete",
    "policy/poddisruptionbudgets get list create patch delete",
    "networking.k8s.io/networkpolicies get list create patch delete",
    "rbac.authorization.k8s.io/roles get list create patch",
    "rbac.authorization.k8s.io/rolebindings get list create patch",
    "coordination.k8s.io/leases get list create patch delete",
]
# What it never does, wherever.
NEVER = [
    "gantrymq.io/brokerclusters create update delete",
    "/secrets list watch update delete",
    "/pods create update",
    "/pods/exec create get",
    "/pods/eviction create",
    "/nodes get list",
    "/namespaces get list",
    "/serviceaccounts/token create",
    "apps/deployments list watch update",
    "/serviceaccounts delete",
    "coordination.k8s.io/leases update watch",
    "rbac.authorization.k8s.io/roles escalate bind delete",
    "rbac.authorization.k8s.io/clusterroles get create patch bind",
    "apiextensions.k8s.io/customresourcedefinitions get patch",
    "admissionregistration.k8s.io/validatingadmissionpolicies get patch",
]


def asked(rows: list[str]) -> Iterator[tuple[str, str, str]]:
    """Group, resource, verb."""
    for row in rows:
        what, *verbs = row.split()
        group, _, resource = what.partition("/")
        for verb in verbs:
            yield group, resource, verb


def may(plane: ControlPlane, user: str, namespace: str, what: tuple[str, str, str], name: str = "") -> bool:
    group, resource, verb = what
    kind, _, subresource = resource.partition("/")
    wanted = {"namespace": namespace, "group": group, "resource": kind, "subresource": subresource}
    wanted |= {"verb": verb, "name": name}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    answer = plane.admin.create(REVIEWS, review | {"spec": {"user": user, "resourceAttributes": wanted}})
    return bool(answer["status"]["allowed"])


@pytest.fixture(scope="module")
def granted(kinds: ControlPlane) -> ControlPlane:  # noqa: F811
    """A release for each scope, in a namespace of its own: its account and roles, and nothing else of it."""
    for namespace in (*NAMESPACES, *(f"of-{scope}" for scope in WATCHED)):
        kinds.admin.apply(f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}")
    for scope, watched in WATCHED.items():
        flags = ["--set", f"watch.scope={scope}"]
        flags += ["--set", f"watch.namespaces={{{watched}}}"] if scope == "many" else []
        namespace = watched if scope == "one" else f"of-{scope}"
        command = [str(binaries.program("helm")), "template", scope, str(ROOT / "charts/gantrymq"), "-n", namespace]
        text = subprocess.run([*command, *flags], check=True, capture_output=True, text=True, timeout=60).stdout
        mine = [each for each in yaml.safe_load_all(text) if each]
        roles = [each for each in mine if "Role" in each["kind"] or each["kind"] == "ServiceAccount"]
        kinds.admin.apply(yaml.safe_dump_all(roles))
    return kinds


def account(scope: str) -> tuple[str, str]:
    """The release's namespace and the account's user."""
    namespace = WATCHED["one"] if scope == "one" else f"of-{scope}"
    return namespace, f"system:serviceaccount:{namespace}:{scope}-gantrymq"


@pytest.mark.parametrize("scope", WATCHED)
def test_it_may_do_what_it_does_where_it_looks_and_nowhere_else(granted: ControlPlane, scope: str) -> None:
    _, user = account(scope)
    until(lambda: may(granted, user, "rights-one", next(asked(DOES))), "the roles are in force")
    for namespace in NAMESPACES:
        is_watched = scope == "all" or namespace in WATCHED[scope].split(",")
        for what in asked(DOES):
            assert may(granted, user, namespace, what) is is_watched, (namespace, what)
        for what in asked(NEVER):
            assert not may(granted, user, namespace, what), (namespace, what)


@pytest.mark.parametrize("scope", ["many", "one"])
def test_an_operator_of_some_namespaces_works_there_with_no_more_rights_than_that(
    granted: ControlPlane, tmp_path: Path, scope: str
) -> None:
    namespace, _ = account(scope)
    with Replica(granted, tmp_path, "a", release=Release(namespace, f"{scope}-gantrymq")) as only:
        only.start(namespaces=WATCHED[scope])
        until(only.is_ready, "it watches")
        until(only.leads, "it leads")
        names = {each: made(granted, each) for each in NAMESPACES}
        for each in WATCHED[scope].split(","):
            until(lambda: is_well(granted, names[each], each), f"it works in {each}")  # noqa: B023
        assert {each.namespace for each in only.writes()} == {namespace, *WATCHED[scope].split(",")}
        assert not [each for each in only.writes() if each.status >= 400] and "forbidden" not in only.log().lower()
    for each, name in names.items():
        granted.admin.delete(f"{CLUSTERS.replace(HOME, each)}/{name}")


@pytest.mark.parametrize("scope", WATCHED)
def test_it_may_hold_its_own_lease(granted: ControlPlane, scope: str) -> None:
    namespace, user = account(scope)
    until(lambda: may(granted, user, "rights-one", next(asked(DOES))), "the roles are in force")
    for verb in ("get", "patch", "delete"):
        assert may(granted, user, namespace, ("coordination.k8s.io", "leases", verb), f"{scope}-gantrymq")
    assert may(granted, user, namespace, ("coordination.k8s.io", "leases", "create"))
    if scope == "many":  # elsewhere it looks after the namespace too
        assert not may(granted, user, namespace, ("coordination.k8s.io", "leases", "patch"), "somebody-elses")


@pytest.mark.parametrize(
    ("role", "verb", "resource", "is_granted"),
    [
        ("view", "list", "brokerclusters", True),
        ("view", "get", "brokerclusters/status", True),
        ("view", "patch", "brokerclusters", False),
        ("edit", "create", "brokerclusters", True),
        ("edit", "patch", "brokerclusters/scale", True),
        ("edit", "delete", "consumergroups", True),
        ("edit", "patch", "brokerclusters/status", False),
    ],
)
def test_roles_of_people_know_our_kinds(
    granted: ControlPlane, role: str, verb: str, resource: str, is_granted: bool
) -> None:
    name, path = f"all-gantrymq-{role}", "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    labels = granted.admin.get(f"{path}/{name}")["metadata"]["labels"]
    assert labels[f"rbac.authorization.k8s.io/aggregate-to-{role}"] == "true"
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": f"person-{role}", "namespace": "rights-one"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "User", "name": f"person-{role}", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    granted.admin.apply(yaml.safe_dump(binding))
    known = ("gantrymq.io", "brokerclusters", "get" if role == "view" else "create")
    until(lambda: may(granted, f"person-{role}", "rights-one", known), "the binding is in force")
    assert may(granted, f"person-{role}", "rights-one", ("gantrymq.io", resource, verb)) is is_granted


def without(role: Document, resource: str) -> Document:
    """The role, short of everything about one kind."""
    short = copy.deepcopy(role)
    for rule in short["rules"]:
        rule["resources"] = [each for each in rule["resources"] if each != resource]
    short["rules"] = [rule for rule in short["rules"] if rule["resources"]]
    return short


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "resource", ["poddisruptionbudgets", "secrets", "pods", "brokerclusters/status", "networkpolicies"]
)
def test_a_right_that_is_missing_is_named_and_nothing_breaks(
    home: ControlPlane, tmp_path: Path, resource: str  # noqa: F811
) -> None:
    role = home.admin.get(ROLE)
    home.admin.ask("PUT", ROLE, without(role, resource))
    try:
        with Replica(home, tmp_path, "a") as only:
            only.start()
            until(only.leads, "it leads")
            name = made(home)
            until(lambda: named(home, only, name, resource), f"it says that it may not touch {resource}")
            assert only.process is not None and only.process.poll() is None and only.leads()
            version = home.admin.get(ROLE)["metadata"]["resourceVersion"]
            home.admin.ask("PUT", ROLE, role | {"metadata": role["metadata"] | {"resourceVersion": version}})
            until(lambda: is_well(home, name), "it works when it has the right")
            until(only.is_ready, "it is ready")
    finally:
        version = home.admin.get(ROLE)["metadata"]["resourceVersion"]
        home.admin.ask("PUT", ROLE, role | {"metadata": role["metadata"] | {"resourceVersion": version}})


def named(plane: ControlPlane, replica: Replica, name: str, resource: str) -> bool:
    """By a condition or in the log, with the words of the API server."""
    conditions = plane.admin.get(f"{CLUSTERS}/{name}").get("status", {}).get("conditions", [])
    said = [*(each["message"] for each in conditions), *replica.log().splitlines()]
    kind = resource.partition("/")[0]
    return any("forbidden" in each.lower() and kind in each for each in said)


def is_well(plane: ControlPlane, name: str, namespace: str = HOME) -> bool:
    """As well as a cluster without nodes can be."""
    status = plane.admin.get(f"{CLUSTERS.replace(HOME, namespace)}/{name}").get("status", {})
    stalled = [each["status"] for each in status.get("conditions", []) if each["type"] == "Stalled"]
    return stalled == ["False"]


def test_the_operator_writes_registers_and_its_own_lease_and_no_other(kinds: ControlPlane) -> None:  # noqa: F811
    """RBAC cannot say so for Leases whose names are not known; an admission policy does."""
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token"
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    operator = kinds.as_user(str(kinds.admin.create(path, asked)["status"]["token"]))
    leases, others = (f"/apis/coordination.k8s.io/v1/namespaces/{each}/leases" for each in (HOME, "kube-system"))
    foreign = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a-scheduler"}}
    kinds.admin.create(others, foreign | {"spec": {"holderIdentity": "a"}})

    def is_refused() -> bool:
        try:
            operator.merge(f"{others}/a-scheduler", {"spec": {"holderIdentity": "b"}})
        except RefusedError as error:
            return "the label gantrymq.io/group" in error.message
        return False

    until(is_refused, "the policy is in force")
    with pytest.raises(RefusedError, match=r"gantrymq\.io/group"):
        operator.merge(f"{others}/a-scheduler", {"metadata": {"labels": {"gantrymq.io/group": "b0"}}})
    with pytest.raises(RefusedError, match=r"gantrymq\.io/group"):
        operator.delete(f"{others}/a-scheduler")
    kinds.admin.merge(f"{others}/a-scheduler", {"spec": {"holderIdentity": "c"}})
    name = fresh_name()
    operator.create(leases, lease(name, {"leaseTransitions": 1}, {"gantrymq.io/phase": "Active"}))
    kinds.admin.merge(f"{leases}/{name}", {"metadata": {"labels": {"gantrymq.io/group": None}}})
    operator.merge(f"{leases}/{name}", {"spec": {"leaseTransitions": 2}})
    operator.delete(f"{leases}/{name}")
    kinds.admin.delete(f"{others}/a-scheduler")


def test_leases_of_others_are_none_of_the_policys_business(home: ControlPlane) -> None:  # noqa: F811
    """The operator's own Lease among them: it goes from hand to hand, and its transitions may be set back."""
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases"
    spec = {"holderIdentity": "a", "leaseTransitions": 7}
    document = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": LEASE}, "spec": spec}
    home.admin.create(leases, document)
    home.admin.merge(f"{leases}/{LEASE}", {"spec": {"holderIdentity": "b", "leaseTransitions": 1}})
    home.admin.merge(f"{leases}/{LEASE}", {"spec": {"holderIdentity": "", "leaseTransitions": 0}})
    home.admin.delete(f"{leases}/{LEASE}")
