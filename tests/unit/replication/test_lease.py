"""The register as a Kubernetes Lease: what every register does, and what an API server can answer besides."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from gantry.errors import OutcomeUnknownError
from gantry.replication.lease import LeaseAddress, LeaseRegister
from gantry.replication.register import (
    Patience,
    RegisterConflictError,
    RegisterDamagedError,
    RegisterGoneError,
    RegisterUnavailableError,
    Seen,
)
from testkit.apiserver import ApiServer
from testkit.registers import ACTIVE, PLAYS, Play


@asynccontextmanager
async def served() -> AsyncIterator[tuple[ApiServer, Callable[[], LeaseRegister]]]:
    server = ApiServer()
    opened: list[LeaseRegister] = []

    def open_it() -> LeaseRegister:
        address = LeaseAddress(server.url, "messaging", "orders-b0", lambda: f"token-{len(server.tokens)}")
        opened.append(LeaseRegister(address, f"w{len(opened)}", timeout_s=30.0))
        return opened[-1]

    async with server.running():
        try:
            yield server, open_it
        finally:
            for register in opened:
                await register.close()


@asynccontextmanager
async def leased() -> AsyncIterator[tuple[ApiServer, LeaseRegister, Seen]]:
    async with served() as (server, open_it):
        register = open_it()
        yield server, register, await register.create(ACTIVE)


@pytest.mark.parametrize("each", PLAYS, ids=lambda each: each.__name__)
async def test_a_lease_does_what_every_register_does(each: Play) -> None:
    async with served() as (_, open_it):
        await each(open_it)


async def test_a_server_that_is_slow_for_good_is_understood_in_the_end() -> None:
    async with leased() as (server, _, _):
        register = LeaseRegister(LeaseAddress(server.url, "messaging", "orders-b0", str), "w", timeout_s=0.1)
        server.reads_take_s = 0.3
        with pytest.raises(RegisterUnavailableError):
            await register.read()
        for _ in range(20):
            with suppress(RegisterUnavailableError):
                assert (found := await register.read()) is not None and found.record == ACTIVE
                break
        else:
            raise AssertionError("it was never read")
        await register.close()


def test_patience_grows_while_nothing_is_answered_and_falls_with_the_answers() -> None:
    patience = Patience(1.0)
    for timeout_s in (2.0, 4.0, 4.0):
        patience.missed()
        assert patience.timeout_s == timeout_s
    patience.answered(1.1)
    assert patience.timeout_s == 2.2, "an answer of the same speed comes in time"
    patience.answered(0.1)
    assert patience.timeout_s == 1.0


async def test_a_lease_reads_as_a_person_expects_it() -> None:
    async with leased() as (server, _, _):
        spec = server.leases["orders-b0"]["spec"]
        assert spec == {
            "holderIdentity": "0.0/2c41",
            "leaseTransitions": 4,
            "leaseDurationSeconds": 15,
            "renewTime": "2027-01-15T08:00:00.123000Z",
        }


async def test_a_lease_that_is_made_carries_the_labels_of_its_group() -> None:
    async with served() as (server, _):
        labels = {"gantrymq.io/group": "b0"}
        register = LeaseRegister(LeaseAddress(server.url, "messaging", "b0", str, labels=labels), "w", timeout_s=30.0)
        try:
            await register.create(ACTIVE)
        finally:
            await register.close()
        metadata = server.leases["b0"]["metadata"]
        assert isinstance(metadata, dict) and metadata["labels"] == labels


async def test_what_others_wrote_on_the_lease_stays() -> None:
    async with leased() as (server, register, made):
        metadata = server.leases["orders-b0"]["metadata"]
        assert isinstance(metadata, dict)
        metadata["labels"] = {"team": "orders"}
        metadata["annotations"]["example.com/note"] = "kept"
        await register.write(ACTIVE, made.version)
        metadata = server.leases["orders-b0"]["metadata"]
        assert isinstance(metadata, dict)
        assert metadata["labels"] == {"team": "orders"} and metadata["annotations"]["example.com/note"] == "kept"


async def test_one_that_may_read_and_not_write_reads_and_sends_no_write() -> None:
    def nobody() -> str:
        raise RegisterUnavailableError("this one does not lead")

    async with leased() as (server, _, made):
        address = LeaseAddress(server.url, "messaging", "orders-b0", lambda: "reader", writing=nobody)
        standby = LeaseRegister(address, "s", timeout_s=30.0)
        try:
            assert await standby.read() == made
            asked = len(server.tokens)
            with pytest.raises(RegisterUnavailableError, match="does not lead"):
                await standby.write(ACTIVE, made.version)
            assert len(server.tokens) == asked
        finally:
            await standby.close()


async def test_every_request_carries_the_token_of_its_moment() -> None:
    async with leased() as (server, register, made):
        await register.read()
        await register.write(ACTIVE, made.version)
        assert server.tokens == ["Bearer token-0", "Bearer token-1"]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("drop", OutcomeUnknownError), ("lose", OutcomeUnknownError), ("late", OutcomeUnknownError),
        ("500", OutcomeUnknownError), ("504", OutcomeUnknownError), ("409", RegisterConflictError),
        ("403", RegisterUnavailableError), ("404", RegisterGoneError), ("401", RegisterUnavailableError),
        ("429", RegisterUnavailableError), ("422", RegisterUnavailableError),
    ],
)  # fmt: skip
async def test_an_answer_says_whether_the_write_may_have_been_done(fault: str, kind: type[Exception]) -> None:
    async with leased() as (server, register, made):
        server.faults.append(fault)
        with pytest.raises(kind):
            await register.write(ACTIVE, made.version)
        found = await register.read()
        assert found is not None and (found.version != made.version) is (fault == "lose")


async def test_a_request_that_comes_late_fails_after_a_renewal_of_the_same_instant() -> None:
    async with leased() as (server, register, made):
        server.faults.append("late")
        with pytest.raises(OutcomeUnknownError):
            await register.write(ACTIVE, made.version)
        await register.write(ACTIVE, made.version)
        assert server.deliver() == 409


@pytest.mark.parametrize("mark", ["deletionTimestamp", "teardown"])
async def test_a_lease_that_is_being_deleted_is_gone(mark: str) -> None:
    async with leased() as (server, register, made):
        metadata = server.leases["orders-b0"]["metadata"]
        assert isinstance(metadata, dict)
        if mark == "teardown":
            metadata["annotations"]["gantrymq.io/teardown"] = "true"
        else:
            metadata[mark] = "2026-11-21T01:00:00Z"
        with pytest.raises(RegisterGoneError, match="being deleted"):
            await register.read()
        with pytest.raises(RegisterGoneError):
            await register.write(ACTIVE, made.version)


@pytest.mark.parametrize(
    "spec", [{"renewTime": "yesterday"}, {"leaseTransitions": -1}, {"holderIdentity": "me"}, {"holderIdentity": ""}]
)
async def test_a_lease_that_somebody_changed_by_hand_is_not_believed(spec: dict[str, object]) -> None:
    async with leased() as (server, register, _):
        held = server.leases["orders-b0"]["spec"]
        assert isinstance(held, dict)
        held.update(spec)
        with pytest.raises(RegisterDamagedError, match="all members at hand"):
            await register.read()


async def test_a_server_that_is_not_there_did_nothing() -> None:
    async with served() as (server, open_it):
        server.url = "http://127.0.0.1:1"
        register = open_it()
        with pytest.raises(RegisterUnavailableError):
            await register.read()
        with pytest.raises(RegisterUnavailableError):
            await register.write(ACTIVE, "1")
