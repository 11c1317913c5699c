"""What every implementation of `gantry.replication.register.Register` has to do: one list of plays for all of them.

A play gets a function that opens the same register once more, as another process would.  `LossyRegister` stands between
a play and any implementation: it loses answers, and requests that it keeps back arrive when the play says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from gantry.errors import OutcomeUnknownError
from gantry.replication import operations
from gantry.replication.members import Member, parse_set
from gantry.replication.record import Holder, MemberDisk, Phase, RegisterRecord
from gantry.replication.register import Register, RegisterConflictError, RegisterGoneError, Seen
from gantry.replication.terms import LeaderTerms

ME = Holder(Member(0, 0), "2c41")
ACTIVE = RegisterRecord(
    "1f0e7d",
    4,
    Phase.ACTIVE,
    holder=ME,
    in_sync=parse_set("0.0,1.0,2.0"),
    set_version=17,
    stores=((0, MemberDisk("8f1c", 0)), (1, MemberDisk("77aa", 0)), (2, MemberDisk("c09d", 0))),
    confirm_floor=1_843_200,
    renewed_ms=1_800_000_000_123,
    leader_terms=LeaderTerms(4, True, 2, 15),
)

Open = Callable[[], Register]
Play = Callable[[Open], Awaitable[None]]


@dataclass
class LossyRegister:
    """A register behind a network that loses what it is told to lose."""

    inner: Register
    loses_answers: bool = False
    keeps_back: bool = False
    answers_never: bool = False  # what it carries out, and what it keeps back
    late: list[tuple[RegisterRecord, str]] = field(default_factory=list)
    is_read: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self) -> Seen | None:
        self.is_read.set()
        return await self.inner.read()

    async def create(self, record: RegisterRecord) -> Seen:
        return await self.inner.create(record)

    async def write(self, record: RegisterRecord, version: str) -> Seen:
        if self.keeps_back:
            self.late.append((record, version))
            await self._hang()
            raise OutcomeUnknownError("kept back")
        done = await self.inner.write(record, version)
        await self._hang()
        if self.loses_answers:
            raise OutcomeUnknownError("the answer was lost")
        return done

    async def _hang(self) -> None:
        if self.answers_never:
            await asyncio.Event().wait()

    async def close(self) -> None:
        await self.inner.close()

    async def deliver(self) -> bool:
        """The request that was kept back arrives; whether it was carried out."""
        record, version = self.late.pop(0)
        try:
            await self.inner.write(record, version)
        except RegisterConflictError:
            return False
        return True


async def _refuses(attempt: Awaitable[Seen], kind: type[Exception]) -> None:
    try:
        await attempt
    except kind:
        return
    raise AssertionError(f"expected {kind.__name__}")


def _renewed(record: RegisterRecord, confirmed: int) -> RegisterRecord:
    done = operations.renew(record, ME, record.epoch, confirmed, record.renewed_ms)
    assert isinstance(done, RegisterRecord)
    return done


async def what_is_made_is_read(open_it: Open) -> None:
    assert await open_it().read() is None
    made = await open_it().create(ACTIVE)
    assert made.record == ACTIVE
    assert await open_it().read() == made


async def it_is_made_once(open_it: Open) -> None:
    made = await open_it().create(ACTIVE)
    await _refuses(open_it().create(replace(ACTIVE, epoch=1)), RegisterConflictError)
    assert await open_it().read() == made


async def a_write_on_the_version_that_was_read_is_done(open_it: Open) -> None:
    made = await open_it().create(ACTIVE)
    sealed = operations.seal(ACTIVE)
    assert isinstance(sealed, RegisterRecord)
    done = await open_it().write(sealed, made.version)
    assert done.record == sealed and done.version != made.version
    assert await open_it().read() == done


async def a_write_on_an_older_version_changes_nothing(open_it: Open) -> None:
    made = await open_it().create(ACTIVE)
    done = await open_it().write(_renewed(ACTIVE, 2_000_000), made.version)
    await _refuses(open_it().write(_renewed(ACTIVE, 3_000_000), made.version), RegisterConflictError)
    assert await open_it().read() == done


async def a_write_that_changes_nothing_makes_older_requests_fail(open_it: Open) -> None:
    made = await open_it().create(ACTIVE)
    done = await open_it().write(ACTIVE, made.version)
    assert done.version != made.version
    await _refuses(open_it().write(_renewed(ACTIVE, 3_000_000), made.version), RegisterConflictError)


async def of_many_writers_on_one_version_one_wins(open_it: Open) -> None:
    made = await open_it().create(ACTIVE)
    wanted = [_renewed(ACTIVE, 2_000_000 + number) for number in range(8)]
    attempts = [open_it().write(record, made.version) for record in wanted]
    done = await asyncio.gather(*attempts, return_exceptions=True)
    winners = [each for each in done if isinstance(each, Seen)]
    assert len(winners) == 1 and sum(isinstance(each, RegisterConflictError) for each in done) == 7
    assert await open_it().read() == winners[0]


async def a_lost_answer_shows_when_the_register_is_read(open_it: Open) -> None:
    made = await open_it().create(ACTIVE)
    mine = LossyRegister(open_it(), loses_answers=True)
    await _refuses(mine.write(_renewed(ACTIVE, 2_000_000), made.version), OutcomeUnknownError)
    found = await open_it().read()
    assert found is not None and found.version != made.version and found.record.confirm_floor == 2_000_000
    await _refuses(open_it().write(ACTIVE, made.version), RegisterConflictError)


async def a_late_request_is_carried_out_if_nobody_wrote(open_it: Open) -> None:
    made = await open_it().create(ACTIVE)
    mine = LossyRegister(open_it(), keeps_back=True)
    await _refuses(mine.write(_renewed(ACTIVE, 2_000_000), made.version), OutcomeUnknownError)
    assert await open_it().read() == made  # which proves nothing:
    assert await mine.deliver()
    found = await open_it().read()
    assert found is not None and found.record.confirm_floor == 2_000_000


async def a_late_request_fails_after_a_later_write(open_it: Open) -> None:
    made = await open_it().create(ACTIVE)
    mine = LossyRegister(open_it(), keeps_back=True)
    await _refuses(mine.write(_renewed(ACTIVE, 2_000_000), made.version), OutcomeUnknownError)
    mine.keeps_back = False
    done = await mine.write(ACTIVE, made.version)
    assert not await mine.deliver()
    assert await open_it().read() == done


async def nothing_is_written_where_there_is_no_register(open_it: Open) -> None:
    await _refuses(open_it().write(ACTIVE, "1"), RegisterGoneError)
    assert await open_it().read() is None


PLAYS: tuple[Play, ...] = (
    what_is_made_is_read,
    it_is_made_once,
    a_write_on_the_version_that_was_read_is_done,
    a_write_on_an_older_version_changes_nothing,
    a_write_that_changes_nothing_makes_older_requests_fail,
    of_many_writers_on_one_version_one_wins,
    a_lost_answer_shows_when_the_register_is_read,
    a_late_request_is_carried_out_if_nobody_wrote,
    a_late_request_fails_after_a_later_write,
    nothing_is_written_where_there_is_no_register,
)
