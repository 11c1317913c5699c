"""The register as a Lease of a real API server over a real etcd: every register's plays, and what only they can do.

The role decides, tokens end, the API server restarts, etcd freezes and comes back from a backup.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from gantry.errors import OutcomeUnknownError
from gantry.failover.coordinator import Coordinator, Group
from gantry.failover.decide import Policy
from gantry.replication import operations
from gantry.replication.lease import LeaseAddress, LeaseRegister
from gantry.replication.record import Phase, RegisterRecord
from gantry.replication.register import (
    RegisterConflictError,
    RegisterGoneError,
    RegisterUnavailableError,
    Seen,
)
from testkit.hamembers import CLUSTER, GROUP, GroupSim, fresh
from testkit.kube.api import RefusedError
from testkit.kube.controlplane import ControlPlane
from testkit.kube.registers import BROKERS_LEASE, LABELS, LEASES, NAMESPACE, fresh_name, lease, token, until_policed
from testkit.kube.relay import Relay
from testkit.registers import ACTIVE, ME, PLAYS, Play
from testkit.simclock import SimClock

TIMEOUT_S = 30.0
SHORT_S = 1.0  # where no answer is what the test waits for


class Leases:
    """Opens registers and closes them again."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.trust = ssl.create_default_context(cafile=str(plane.authority.certificate))
        self.coordinator = token(plane.admin, "coordinator")
        self.stack = AsyncExitStack()
        self._opened = 0

    def open(
        self, name: str, told: Callable[[], str] | None = None, server: str = "", timeout_s: float = TIMEOUT_S
    ) -> LeaseRegister:
        self._opened += 1
        address = LeaseAddress(
            server or self.plane.server,
            NAMESPACE,
            name,
            told or (lambda: self.coordinator),
            None if server else self.trust,
            LABELS,
        )
        register = LeaseRegister(address, f"w{self._opened}", timeout_s)
        self.stack.push_async_callback(register.close)
        return register


@asynccontextmanager
async def opening(plane: ControlPlane) -> AsyncIterator[Leases]:
    leases = Leases(plane)
    async with leases.stack:
        yield leases


def changed(record: RegisterRecord | operations.Denied) -> RegisterRecord:
    assert isinstance(record, RegisterRecord), record
    return record


@pytest.mark.parametrize("each", PLAYS, ids=lambda each: each.__name__)
async def test_a_lease_of_a_real_server_does_what_every_register_does(plane: ControlPlane, each: Play) -> None:
    name = fresh_name()
    async with opening(plane) as leases:
        await each(lambda: leases.open(name))


@pytest.mark.parametrize(("fault", "done"), [("drop", False), ("lose", True), ("late", False), ("silent", True)])
async def test_a_write_without_an_answer_is_of_unknown_outcome_until_the_next_one(
    plane: ControlPlane, fault: str, done: bool
) -> None:
    async with opening(plane) as leases:
        relay = Relay(plane.server, leases.trust)
        await leases.stack.enter_async_context(relay.running())
        register = leases.open(fresh_name(), server=relay.url, timeout_s=SHORT_S if fault == "silent" else TIMEOUT_S)
        made = await register.create(ACTIVE)
        relay.faults.append(fault)
        with pytest.raises(OutcomeUnknownError):
            await register.write(changed(operations.renew(ACTIVE, ME, 4, 2_000_000, 0)), made.version)
        found = await register.read()
        assert found is not None and (found.version != made.version) is done
        last = await register.write(ACTIVE, found.version)
        if fault == "late":
            assert await relay.deliver() == 409
            assert await register.read() == last


async def test_a_late_request_is_carried_out_while_nobody_wrote(plane: ControlPlane) -> None:
    async with opening(plane) as leases:
        relay = Relay(plane.server, leases.trust)
        await leases.stack.enter_async_context(relay.running())
        register = leases.open(fresh_name(), server=relay.url)
        made = await register.create(ACTIVE)
        relay.faults.append("late")
        with pytest.raises(OutcomeUnknownError):
            await register.write(changed(operations.seal(ACTIVE)), made.version)
        assert await register.read() == made
        assert await relay.deliver() == 200
        found = await register.read()
        assert found is not None and found.record.phase is Phase.SEALED


async def test_a_lease_that_waits_for_its_finalizers_is_gone(plane: ControlPlane) -> None:
    name = fresh_name()
    async with opening(plane) as leases:
        register = leases.open(name)
        await register.create(ACTIVE)
        plane.admin.merge(f"{LEASES}/{name}", {"metadata": {"finalizers": ["example.com/later"]}})
        plane.admin.delete(f"{LEASES}/{name}")
        version = plane.admin.get(f"{LEASES}/{name}")["metadata"]["resourceVersion"]
        with pytest.raises(RegisterGoneError, match="being deleted"):
            await register.read()
        with pytest.raises(RegisterGoneError, match="being deleted"):
            await register.write(ACTIVE, version)
        plane.admin.merge(f"{LEASES}/{name}", {"metadata": {"finalizers": []}})
        assert await register.read() is None


async def test_a_group_whose_cluster_is_being_deleted_has_no_register(plane: ControlPlane) -> None:
    name = fresh_name()
    async with opening(plane) as leases:
        register = leases.open(name)
        await register.create(ACTIVE)
        plane.admin.merge(f"{LEASES}/{name}", {"metadata": {"annotations": {"gantrymq.io/teardown": "true"}}})
        with pytest.raises(RegisterGoneError, match="being deleted"):
            await register.read()


async def test_a_broker_changes_its_own_lease_and_no_other(plane: ControlPlane) -> None:
    broker = token(plane.admin, "broker")
    other = fresh_name()
    async with opening(plane) as leases:
        made = await leases.open(BROKERS_LEASE).create(ACTIVE)
        mine = leases.open(BROKERS_LEASE, lambda: broker)
        assert await mine.read() == made
        done = await mine.write(ACTIVE, made.version)
        assert done.version != made.version
        foreign = await leases.open(other).create(ACTIVE)
        not_mine = leases.open(other, lambda: broker)
        for attempt in (not_mine.read, lambda: not_mine.write(ACTIVE, foreign.version), lambda: mine.create(ACTIVE)):
            with pytest.raises(RegisterUnavailableError, match=r"(?s)403.*role of the service account"):
                await attempt()
        assert await leases.open(other).read() == foreign
    plane.admin.delete(f"{LEASES}/{BROKERS_LEASE}")


async def test_a_token_that_is_over_does_nothing_and_its_successor_is_found_in_the_file(
    plane: ControlPlane, tmp_path: Path
) -> None:
    file, name = tmp_path / "token", fresh_name()
    account = plane.admin.get(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/coordinator")["metadata"]
    now = int(time.time())
    over = {
        "iss": "https://kubernetes.default.svc",
        "aud": ["https://kubernetes.default.svc"],
        "sub": f"system:serviceaccount:{NAMESPACE}:coordinator",
        "kubernetes.io": {
            "namespace": NAMESPACE,
            "serviceaccount": {"name": "coordinator", "uid": account["uid"]},
        },
        "iat": now - 1200,
        "nbf": now - 1200,
    }
    async with opening(plane) as leases:
        register = leases.open(name, lambda: file.read_text().strip())
        file.write_text(plane.authority.token({**over, "exp": now + 600}))
        made = await register.create(ACTIVE)
        file.write_text(plane.authority.token({**over, "exp": now - 600}))
        for attempt in (register.read, lambda: register.write(ACTIVE, made.version)):
            with pytest.raises(RegisterUnavailableError, match="401"):
                await attempt()
        file.write_text(token(plane.admin, "coordinator"))
        assert await register.read() == made


async def test_a_register_outlives_a_restart_of_the_api_server(plane: ControlPlane) -> None:
    async with opening(plane) as leases:
        register = leases.open(fresh_name(), timeout_s=SHORT_S)
        made = await register.create(ACTIVE)
        plane.stop("kube-apiserver")
        with pytest.raises(RegisterUnavailableError):
            await register.read()
        with pytest.raises((RegisterUnavailableError, OutcomeUnknownError)):
            await register.write(ACTIVE, made.version)
        plane.start_api_server()
        starting = asyncio.create_task(asyncio.to_thread(plane.wait_ready))
        found = await until_it_answers(register, starting)
        assert found == made
        assert (await register.write(ACTIVE, made.version)).version != made.version


async def until_it_answers(register: LeaseRegister, starting: asyncio.Task[None]) -> Seen | None:
    """What the first answer says; a server that only just starts must not be taken for one that has no register."""
    while not starting.done():
        try:
            found = await register.read()
        except RegisterUnavailableError:
            await asyncio.wait([starting], timeout=0.05)
            continue
        await starting
        return found
    await starting
    return await register.read()


async def test_what_a_frozen_etcd_kept_is_done_or_fails_for_ever_after_the_next_write(plane: ControlPlane) -> None:
    async with opening(plane) as leases:
        name = fresh_name()
        hasty, patient = leases.open(name, timeout_s=SHORT_S), leases.open(name)
        made = await patient.create(ACTIVE)
        with plane.frozen("etcd"):
            with pytest.raises(OutcomeUnknownError):
                await hasty.write(changed(operations.seal(ACTIVE)), made.version)
            with pytest.raises(RegisterUnavailableError):
                await hasty.read()
        try:
            renewed = changed(operations.renew(ACTIVE, ME, 4, 2_000_000, 0))
            last: Seen | None = await patient.write(renewed, made.version)
        except RegisterConflictError:
            last = await patient.read()
            assert last is not None and last.record.phase is Phase.SEALED
        assert await patient.read() == last


async def test_an_etcd_that_was_restored_is_found_out_by_the_members_promises(plane: ControlPlane) -> None:
    """The epoch of the register went back; the promises did not.  Nobody leads before every member was heard."""

    async with opening(plane) as leases:
        register = leases.open(fresh_name())
        group = GroupSim(register, {each: fresh(each, f"disk{each}") for each in range(3)})
        clock = SimClock()
        policy = Policy(replicas=3, min_in_sync=2, is_sync_master=True, suspect_after_s=5.0)
        coordinator = Coordinator(Group(CLUSTER, GROUP, (0, 1, 2), policy), register, group, clock, lambda _: None)

        async def rounds(number: int) -> RegisterRecord:
            for _ in range(number):
                await coordinator.round()
                clock.advance(1000)
            seen = await register.read()
            assert seen is not None
            return seen.record

        await rounds(3)
        await group.everybody_looks()
        await group.renew(1000)
        plane.back_up("epoch-1")
        group.members[0].is_up = False
        assert (await rounds(10)).epoch == 2
        newer = await register.read()
        assert newer is not None
        await group.everybody_looks()
        group.members[0].is_up = True
        await group.look(0)
        group.members[0].is_up = False

        plane.restore("epoch-1")
        until_policed(plane.admin)
        older = await register.read()
        assert older is not None and older.record.epoch == 1
        with pytest.raises(RegisterConflictError):
            await register.write(newer.record, newer.version)
        assert (await rounds(10)).epoch == 1, "one member is silent, and may have promised more"
        group.members[0].is_up = True
        found = await rounds(5)
        assert (found.epoch, found.phase) == (3, Phase.ACTIVE)


# The rules of the chart's admission policy

SPEC = {"holderIdentity": "0.0/2c41", "leaseTransitions": 4, "leaseDurationSeconds": 15}
SET = {"gantrymq.io/sync-set": "0.0,1.0", "gantrymq.io/phase": "Active"}
SEALED = ({**SPEC, "holderIdentity": "", "leaseTransitions": 5}, {**SET, "gantrymq.io/phase": "Sealed"})
OTHER_SET = {**SET, "gantrymq.io/sync-set": "0.0"}


@pytest.mark.parametrize(
    ("before", "after", "rule"),
    [
        ((SPEC, SET), ({**SPEC, "leaseTransitions": 3}, SET), "the epoch of a broker group never falls"),
        ((SPEC, SET), ({**SPEC, "leaseTransitions": None}, SET), "the epoch of a broker group never falls"),
        ((SPEC, SET), ({**SPEC, "holderIdentity": "1.0/9f"}, SET), "changes its holder only in a new epoch"),
        ((SPEC, SET), ({**SPEC, "holderIdentity": ""}, SET), "changes its holder only in a new epoch"),
        (SEALED, (SEALED[0], {**SEALED[1], "gantrymq.io/sync-set": "0.0"}), "sealed broker group is frozen"),
        (SEALED, (SEALED[0], {**SEALED[1], "gantrymq.io/sync-set": None}), "sealed broker group is frozen"),
        ((SPEC, SET), (SEALED[0], {**SEALED[1], "gantrymq.io/sync-set": "1.0"}), "sealing a broker group keeps"),
        ((SPEC, SET), (SEALED[0], {"gantrymq.io/sync-set": "", "gantrymq.io/phase": "Recovering"}), ""),
        ((SPEC, SET), ({**SPEC, "holderIdentity": "1.0/9f", "leaseTransitions": 5}, SET), ""),
        ((SPEC, SET), (SPEC, OTHER_SET), ""),
        ((SPEC, SET), SEALED, ""),
        (SEALED, ({**SEALED[0], "holderIdentity": "1.0/9f"}, OTHER_SET), ""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_ours", [True, False], ids=["group", "foreign"])
def test_a_rule_of_the_policy_holds_for_groups_and_for_nobody_else(
    plane: ControlPlane,
    before: tuple[dict[str, object], dict[str, str]],
    after: tuple[dict[str, object], dict[str, object]],
    rule: str,
    is_ours: bool,
) -> None:
    name = fresh_name()
    plane.admin.create(LEASES, lease(name, *before, labelled=is_ours))
    patch = {"spec": after[0], "metadata": {"annotations": after[1]}}
    if rule and is_ours:
        with pytest.raises(RefusedError, match=rule) as refused:
            plane.admin.merge(f"{LEASES}/{name}", patch)
        assert refused.value.status == 422
    else:
        plane.admin.merge(f"{LEASES}/{name}", patch)
