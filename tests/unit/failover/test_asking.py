"""Asking members by HTTP, against the real door with a made-up member behind it, and against strangers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

from aiohttp import web

from gantry.errors import StoreError
from gantry.failover.asking import AskedMembers
from gantry.replication.haapi import HANDOVER, NUDGE, Answer, MemberId, order, refuse
from gantry.replication.haproof import Keys
from gantry.replication.haserver import HaServer
from gantry.replication.hastate import MemberRole, MemberState
from gantry.replication.members import Member
from gantry.replication.record import Holder
from testkit.simclock import SimClock

SECRET = Keys(b"a secret of the whole cluster")
OTHER = Keys(b"a secret of some other cluster")
STATE = MemberState("1f0e", "b0", "s1", Holder(Member(1, 0), "p1"), MemberRole.SLAVE, 4, 4, 4, 0, 90, 80, False)


@dataclass
class Stub:
    """Implements `haserver.SealedMember`."""

    now: MemberState = STATE
    refusal: Answer | None = None
    is_disk_broken: bool = False
    sealed: list[int] = field(default_factory=list)

    def state(self) -> MemberState:
        return self.now

    def settings(self) -> dict[str, object]:
        return {"permission": 6}

    def more(self) -> dict[str, object]:
        return {"lag": {"2": 0}, "role": "nonsense that must not win"}

    async def seal(self, epoch: int) -> Answer | None:
        if self.is_disk_broken:
            raise StoreError("no room")
        if self.refusal is None:
            self.sealed.append(epoch)
            self.now = replace(self.now, promise=epoch, role=MemberRole.NONE)
        return self.refusal


class Scene:
    """A member behind its door, and somebody who asks."""

    def __init__(self, member: Stub, asker_keys: Keys = SECRET) -> None:
        self.member = member
        self.clock = SimClock()
        self.port = 0
        self.asked = AskedMembers(
            "1f0e", "b0", lambda _: f"127.0.0.1:{self.port}" if self.port else "", asker_keys, self.clock, 60.0
        )


@asynccontextmanager
async def asking(
    member: Stub | None = None, keys: Keys = SECRET, orders: Ordered | None = None
) -> AsyncIterator[Scene]:
    scene = Scene(member or Stub(), keys)
    server = HaServer(scene.member, SECRET, SimClock(), orders)
    scene.port = await server.start("127.0.0.1", 0)
    try:
        yield scene
    finally:
        await scene.asked.close()
        await server.close()


async def test_a_state_arrives_as_it_is() -> None:
    async with asking() as scene:
        assert await scene.asked.state(1) == STATE
        assert scene.asked.why == {}


async def test_a_configuration_arrives_as_it_is() -> None:
    async with asking() as scene:
        assert await scene.asked.config(1) == {"permission": 6}
        assert await scene.asked.config(2) is None and "asked for was 2" in scene.asked.why[2]


async def test_a_seal_is_answered_with_what_was_promised() -> None:
    async with asking() as scene:
        first, again = await scene.asked.seal(1, 5), await scene.asked.seal(1, 5)
        assert first is not None and first == again and first.promise == 5 and first.role is MemberRole.NONE
        assert scene.member.sealed == [5, 5]


async def test_a_seal_below_the_promise_is_no_answer_and_changes_nothing() -> None:
    async with asking() as scene:
        assert await scene.asked.seal(1, 3) is None
        assert "4 was promised" in scene.asked.why[1] and scene.member.now == STATE


async def test_a_seal_that_has_to_wait_is_no_answer() -> None:
    async with asking(Stub(refusal=refuse(423, "it starts again", retryAfterMs=900))) as scene:
        assert await scene.asked.seal(1, 5) is None
        assert scene.asked.why[1] == "it starts again"


async def test_a_promise_that_the_disk_did_not_take_is_no_promise() -> None:
    async with asking(Stub(is_disk_broken=True)) as scene:
        assert await scene.asked.seal(1, 5) is None and "no room" in scene.asked.why[1]


async def test_a_member_that_claims_less_than_it_was_asked_to_promise_did_not_promise() -> None:
    class Liar(Stub):
        async def seal(self, epoch: int) -> Answer | None:
            return None

    async with asking(Liar()) as scene:
        assert await scene.asked.seal(1, 5) is None and "promise 4" in scene.asked.why[1]


async def test_another_members_door_is_no_answer() -> None:
    async with asking() as scene:
        assert await scene.asked.state(2) is None and "this is member 1" in scene.asked.why[2]


async def test_who_does_not_know_the_secret_learns_and_changes_nothing() -> None:
    async with asking(keys=OTHER) as scene:
        assert await scene.asked.state(1) is None
        assert await scene.asked.seal(1, 5) is None and scene.member.sealed == []
        assert "no proof" in scene.asked.why[1]


async def test_a_clock_that_is_years_off_costs_one_more_question() -> None:
    async with asking() as scene:
        scene.clock.jump(-100_000_000_000)
        assert await scene.asked.state(1) == STATE
        scene.clock.jump(200_000_000_000)
        sealed = await scene.asked.seal(1, 9)
        assert sealed is not None and scene.member.sealed == [9]


@dataclass
class Ordered:
    """Implements `haserver.OrderHandler`: hands over to anybody but itself."""

    bodies: list[dict[str, object]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)

    async def carry_out(self, call: str, body: Mapping[str, object]) -> Answer:
        self.calls.append(call)
        self.bodies.append(dict(body))
        return refuse(409, "that is this member") if body.get("target") == 1 else Answer(200, {})


async def test_a_master_is_told_to_hand_over_and_why_it_does_not_is_kept() -> None:
    orders = Ordered()
    async with asking(orders=orders) as scene:
        assert await scene.asked.hand_over(1, 2, 1.5)
        assert not await scene.asked.hand_over(1, 1, 1.5) and scene.asked.why[1] == "that is this member"
        assert [(body["target"], body["deadlineMs"]) for body in orders.bodies] == [(2, 1500), (1, 1500)]


async def test_an_order_that_was_recorded_is_good_in_no_other_epoch_and_no_other_life() -> None:
    orders = Ordered()
    async with asking(orders=orders) as scene:
        seen = await scene.asked.look(1)
        assert seen is not None

        async def refused(epoch: int, life: object) -> str:
            said = order(HANDOVER, MemberId("1f0e", "b0", 1), epoch, target=2, deadlineMs=1000, life=life)
            scene.asked.why.clear()
            await scene.asked._try(1, said)
            return scene.asked.why.get(1, "")

        assert not await refused(4, seen["life"]) and len(orders.bodies) == 1
        assert "meant for epoch 3" in await refused(3, seen["life"])
        assert "meant for epoch 0" in await refused(0, seen["life"])
        assert "update the sender of" in await refused(4, "")
        again = HaServer(scene.member, SECRET, SimClock(), orders)
        scene.port = await again.start("127.0.0.1", 0)
        try:
            assert "ask for its state again" in await refused(4, seen["life"]) and len(orders.bodies) == 1
            assert await scene.asked.hand_over(1, 2, 1.5) and len(orders.bodies) == 2
        finally:
            await again.close()


async def test_a_nudge_is_heard_or_leaves_why_it_was_not() -> None:
    orders = Ordered()
    async with asking(orders=orders) as scene:
        await scene.asked.nudge(1)
        assert orders.calls == [NUDGE] and scene.asked.why == {}
        scene.port = 0
        await scene.asked.nudge(1)
        assert orders.calls == [NUDGE] and scene.asked.why == {1: "its address is not known"}


async def test_a_closed_port_is_no_answer() -> None:
    listener = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    listener.close()
    await listener.wait_closed()
    asked = AskedMembers("1f0e", "b0", lambda _: f"127.0.0.1:{port}", SECRET, SimClock(), 60.0)
    assert await asked.state(1) is None and str(port) in asked.why[1]
    await asked.close()


@asynccontextmanager
async def stranger(answer: Callable[[], web.StreamResponse], heard: list[str]) -> AsyncIterator[int]:
    """Somebody at a member's address who does not know the secret."""

    async def handle(request: web.Request) -> web.StreamResponse:
        heard.append(request.path)
        return answer()

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def against(answer: Callable[[], web.StreamResponse]) -> tuple[MemberState | None, str, list[str]]:
    async def run() -> tuple[MemberState | None, str, list[str]]:
        heard: list[str] = []
        async with stranger(answer, heard) as port:
            asked = AskedMembers("1f0e", "b0", lambda _: f"127.0.0.1:{port}", SECRET, SimClock(), 60.0)
            found = await asked.state(1)
            await asked.close()
            return found, asked.why.get(1, ""), heard

    return asyncio.run(run())


def test_a_state_without_proof_is_not_believed() -> None:
    found, why, _ = against(lambda: web.json_response(STATE.to_document()))
    assert found is None and "no proof" in why


def test_a_time_without_proof_is_not_believed_either() -> None:
    found, _, heard = against(lambda: web.json_response({"error": "late", "timeMs": 1}, status=401))
    assert found is None and len(heard) == 1


def test_an_answer_without_end_is_cut_off_and_nobody_is_sent_elsewhere() -> None:
    found, why, _ = against(lambda: web.Response(body=b"x" * (1 << 20)))
    assert found is None and "more than" in why
    found, why, heard = against(lambda: web.Response(status=307, headers={"Location": "/else"}))
    assert found is None and len(heard) == 1


async def test_who_accepts_and_says_nothing_is_given_up() -> None:
    gone = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await reader.read()
            writer.close()
            await writer.wait_closed()
        gone.set()

    listener = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    asked = AskedMembers("1f0e", "b0", lambda _: f"127.0.0.1:{port}", SECRET, SimClock(), 0.2)
    assert await asked.state(1) is None and "no answer within 0.2 s" in asked.why[1]
    await asked.close()
    await gone.wait()
    listener.close()
    await listener.wait_closed()
