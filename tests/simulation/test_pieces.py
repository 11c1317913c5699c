"""The pieces that only the simulation has keep what the real ones keep."""

from __future__ import annotations

import pytest

from gantry.errors import OutcomeUnknownError
from gantry.replication.record import RegisterRecord
from gantry.replication.register import Register, RegisterConflictError, RegisterGoneError, RegisterUnavailableError
from simulation.groupworld import GroupWorld, Shape
from simulation.ledger import Attempt, Ledger
from simulation.network import Network
from simulation.register import HOST, TIMEOUT_S, RegisterService, Troubles
from simulation.simloop import SimLoop
from simulation.witness import Witness
from simulation.world import World
from testkit.registers import ACTIVE, PLAYS, Play


class Scene:
    """A register and one process that asks it."""

    def __init__(self) -> None:
        self.world = World(7)
        self.network = Network(self.world)
        self.service = RegisterService(self.world, self.network)
        self.loop = SimLoop(self.world, self.network, "10.0.0.1")

    def open(self) -> Register:
        return self.service.door("10.0.0.1")

    def do(self, act: object) -> None:
        """Run a coroutine to its end."""
        task = self.loop.create_task(act)  # type: ignore[arg-type]
        assert self.world.run(60.0, task.done)
        task.result()


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__)
def test_the_simulated_register_is_one(play: Play) -> None:
    scene = Scene()
    scene.do(play(scene.open))


async def _fails(scene: Scene, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        await scene.open().write(ACTIVE, scene.service.seen.version if scene.service.seen else "1")


@pytest.mark.parametrize(
    ("troubles", "error", "is_done"),
    [
        (Troubles(refused=1.0), RegisterUnavailableError, False),
        (Troubles(lost=1.0), OutcomeUnknownError, False),
        (Troubles(unanswered=1.0), OutcomeUnknownError, True),
        (Troubles(late=1.0), OutcomeUnknownError, False),
    ],
)
def test_a_request_goes_wrong_as_it_is_told(troubles: Troubles, error: type[Exception], is_done: bool) -> None:
    scene = Scene()
    scene.service.create(ACTIVE)
    before = scene.service.seen
    scene.service.troubles = troubles
    scene.do(_fails(scene, error))
    assert (scene.service.seen != before) == is_done
    scene.world.run(60.0)
    assert (scene.service.seen != before) == (is_done or troubles.late > 0)


def test_a_late_request_fails_when_somebody_wrote_meanwhile() -> None:
    scene = Scene()
    scene.service.create(ACTIVE)
    scene.service.troubles = Troubles(late=1.0)
    scene.do(_fails(scene, OutcomeUnknownError))
    assert scene.service.seen is not None
    now = scene.service.write(ACTIVE, scene.service.seen.version)
    scene.world.run(60.0)
    assert scene.service.seen == now


def test_a_deleted_register_is_gone_and_one_that_was_set_back_has_a_new_version() -> None:
    scene = Scene()
    made = scene.service.create(ACTIVE)
    scene.service.set_back(ACTIVE)
    assert scene.service.seen is not None and scene.service.seen.version != made.version
    scene.do(_conflicts(scene, made.version))
    scene.service.delete()
    scene.do(_fails(scene, RegisterGoneError))


async def _conflicts(scene: Scene, version: str) -> None:
    with pytest.raises(RegisterConflictError):
        await scene.open().write(ACTIVE, version)


def test_nobody_reaches_a_register_over_a_way_that_is_cut() -> None:
    scene = Scene()
    scene.network.cut("10.0.0.1", HOST)

    async def read() -> None:
        with pytest.raises(RegisterUnavailableError):
            await scene.open().read()

    scene.do(read())
    scene.network.heal()
    scene.do(_reads(scene))


async def _reads(scene: Scene) -> None:
    assert await scene.open().read() is None


def test_reads_or_writes_alone_may_be_refused_or_answered_late() -> None:
    scene = Scene()
    scene.service.create(ACTIVE)
    scene.service.troubles = Troubles(refuses="reads")
    scene.do(_unavailable(scene))
    scene.service.troubles = Troubles(refuses="writes")
    scene.do(_fails(scene, RegisterUnavailableError))
    before = scene.service.seen
    scene.service.troubles = Troubles(write_s=4.0)
    scene.do(_fails(scene, OutcomeUnknownError))
    scene.world.run(scene.world.now + 4.0)
    assert scene.service.seen != before, "it is carried out, and the answer comes too late"
    scene.service.troubles = Troubles(read_s=TIMEOUT_S / 2)
    begun_s = scene.world.now
    scene.do(_sees(scene, ACTIVE))
    assert scene.world.now > begun_s + TIMEOUT_S / 2


async def _unavailable(scene: Scene) -> None:
    with pytest.raises(RegisterUnavailableError):
        await scene.open().read()


async def _sees(scene: Scene, record: RegisterRecord) -> None:
    seen = await scene.open().read()
    assert seen is not None and seen.record == record


def test_a_way_is_late_in_its_direction_until_all_are_healed() -> None:
    scene = Scene()
    arrived: list[float] = []
    scene.network.delay("10.0.0.1", HOST, 3.0)
    for source, target in (("10.0.0.1", HOST), (HOST, "10.0.0.1")):
        scene.network.carry(source, target, lambda: arrived.append(scene.world.now))
    scene.world.run(10.0)
    assert arrived[0] < 0.1 and 3.0 < arrived[1] < 3.1
    scene.network.heal()
    scene.network.carry("10.0.0.1", HOST, lambda: arrived.append(scene.world.now))
    scene.world.run(20.0)
    assert arrived[2] < 10.1


@pytest.mark.parametrize(("sent_at", "is_wrong"), [(0.5, False), (1.5, True)])
def test_a_former_master_acknowledges_nothing_that_is_sent_after_the_next_one_has_acknowledged(
    sent_at: float, is_wrong: bool
) -> None:
    scene = Scene()
    shape = Shape(2, True, 1, is_sync_flush=True, coordinators=1, knows_gone=False)
    group, ledger = GroupWorld(scene.world, shape), Ledger(is_sync=True)
    witness = Witness(scene.world, group.service, group.members, ledger, shape)
    witness.led(0, 1)
    witness.led(1, 2)
    scene.world.run(1.0)
    of_next = Attempt(b"a", "p", "orders", 0, 0.1, 1.0, acked_by=group.members[1].address)
    ledger.acknowledged(of_next)
    scene.world.run(2.0)
    ledger.acknowledged(Attempt(b"b", "p", "orders", 0, sent_at, 2.0, acked_by=group.members[0].address))
    assert ("two masters" in "".join(scene.world.problems)) == is_wrong


@pytest.mark.parametrize(
    ("epoch", "offset", "is_wrong"),
    [(2, 900, False), (2, 901, True), (3, 5000, False), (4, 901, False)],
    ids=["what the next one began with", "a byte more", "its own", "later still"],
)
def test_a_lower_epoch_may_confirm_what_a_higher_one_began_with_and_nothing_else(
    epoch: int, offset: int, is_wrong: bool
) -> None:
    scene = Scene()
    shape = Shape(3, True, 2, is_sync_flush=True, coordinators=1, knows_gone=False)
    witness = Witness(scene.world, scene.service, (), Ledger(is_sync=True), shape)
    witness.began(2, 100)
    witness.began(3, 900)
    witness.spoke("10.0.0.1", epoch, offset)
    assert bool(scene.world.problems) == is_wrong
