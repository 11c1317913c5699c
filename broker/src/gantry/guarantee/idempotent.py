"""The consumer's side: an effect in the database happens once, however often its message is delivered.

    guard = Idempotent("packing", "postgresql")

    async def handle(message: ReceivedMessage) -> None:          # a listener: its return acknowledges
        async with sessions() as session, guard.effect_async(session, message) as effect:
            if effect:
                await session.execute(...)                       # the business, in this session

The same as a decorator, with what opens a connection or session:

    @idempotent(guard, sessions)
    async def handle(message: ReceivedMessage, session: AsyncSession) -> None: ...

Log row, confirmation and effect are one transaction, committed at the end of the block.  So do not commit or roll back
inside, and let an error of the database leave the block.  Before the commit the log row has to be there still: after a
rollback inside of the block it is not, and AbortedTransactionError is raised.  `effect` is false for a duplicate, a
withdrawn message and one that a person closed.  A message that another process works on raises HeldElsewhereError, so
that it is delivered again and never acknowledged.

An effect may send messages: with an outbox, `effect.send(...)` writes their stubs in the same transaction, and they are
sent after its commit.  A block of the outbox inside of this one would commit too early.

    with guard.effect(connection, message, outbox) as effect: ...
    @idempotent(guard, sessions, outbox)                         # its function has the effect as a third argument

The database alone decides.  With `keys` (Redis, `keys.py`) most duplicates are recognised without a write to it; keys
that were lost, expired early or came back change nothing but the speed.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from gantry.clock import Clock, SystemClock
from gantry.errors import GantryError
from gantry.guarantee.consuming import Arrival, Decision, KeyState, arrive_with_key, is_logged
from gantry.guarantee.dialects import dialect_of
from gantry.guarantee.keys import AsyncRedisKeys, RedisKeys
from gantry.guarantee.running import run, run_async
from gantry.guarantee.statements import statements
from gantry.guarantee.steps import Steps
from gantry.guarantee.units import AbortedTransactionError, async_unit, unit
from gantry.model.message import Message

Business = Callable[..., Any]
Listener = Callable[[Any], Awaitable[None]]


class HeldElsewhereError(GantryError):
    """Another process works on this message; it has to be delivered again."""


class Delivered(Protocol):
    """What is needed of a received message; `ReceivedMessage` and `PoppedMessage` have it."""

    @property
    def message_id(self) -> str: ...


class EffectOutbox(Protocol):
    """What is needed of an outbox: `Outbox`, and `AsyncOutbox` for coroutines."""

    def begin(self, connection: Any) -> Any: ...
    def writing(self, tx: Any) -> Steps[None]: ...
    def offer(self, tx: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class Effect:
    """Whether the effect has to be carried out now, and the messages that it sends."""

    decision: Decision
    messages: Any = None  # of the outbox, if there is one

    def __bool__(self) -> bool:
        return self.decision is Decision.RUN

    def send(self, message: Message, *, key: str = "", groups: Sequence[str] = ()) -> str:
        """Send a message if, and only if, this effect is committed; as `OutboxTransaction.send`."""
        if not self or self.messages is None:
            raise RuntimeError("only an effect that is carried out, of a block that was given an outbox, sends")
        message_id: str = self.messages.send(message, key=key, groups=groups)
        return message_id


def arrival_of(group: str, message: Any) -> Arrival:
    """Return where the copy stands that was delivered to this group, by a pull or a pop."""
    queue = getattr(message, "queue", None)
    if queue is None:
        stored = message.stored
        place = (stored.topic, stored.broker_name, stored.queue_id, stored.queue_offset)
    else:
        place = (queue.topic, queue.broker_name, queue.queue_id, message.queue_offset)
    return Arrival(group, message.message_id, *place)


class Idempotent:
    """Guards the effects of one consumer group; safe to share between threads and tasks."""

    def __init__(
        self,
        group: str,
        dialect: str,
        *,
        service: str = "",
        keys: RedisKeys | None = None,
        async_keys: AsyncRedisKeys | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.group = group
        self._say = statements(dialect_of(dialect), "named")
        self._service = service or group
        self._keys = keys
        self._async_keys = async_keys
        self._clock = clock or SystemClock()

    @contextmanager
    def effect(self, connection: Any, message: Delivered, outbox: EffectOutbox | None = None) -> Iterator[Effect]:
        """Begin in the transaction of a connection or session; commit at the end, roll back on an exception."""
        arrival, keys = arrival_of(self.group, message), self._keys
        held = KeyState.UNKNOWN if keys is None else keys.take(arrival)
        try:
            with unit(connection):
                sent = None if outbox is None else outbox.begin(connection)
                effect = _effect(run(self._arrive(arrival, held), connection), arrival, sent)
                yield effect
                if effect:
                    if outbox is not None:
                        run(outbox.writing(sent), connection)
                    _check_kept(run(is_logged(self._say, arrival), connection), arrival)
        except BaseException:
            if keys is not None:
                keys.release(arrival, held)
            raise
        if outbox is not None:
            outbox.offer(sent)
        if keys is not None:
            keys.keep(arrival, held)

    @asynccontextmanager
    async def effect_async(
        self, connection: Any, message: Delivered, outbox: EffectOutbox | None = None
    ) -> AsyncIterator[Effect]:
        """As `effect`, on a connection or session whose methods are coroutines."""
        arrival, keys = arrival_of(self.group, message), self._async_keys
        held = KeyState.UNKNOWN if keys is None else await keys.take(arrival)
        try:
            async with async_unit(connection, is_probed=False):
                sent = None if outbox is None else outbox.begin(connection)
                effect = _effect(await run_async(self._arrive(arrival, held), connection), arrival, sent)
                yield effect
                if effect:  # asked last, so it is the probe as well
                    if outbox is not None:
                        await run_async(outbox.writing(sent), connection)
                    _check_kept(await run_async(is_logged(self._say, arrival), connection), arrival)
        except BaseException:
            if keys is not None:
                await keys.release(arrival, held)
            raise
        if outbox is not None:
            outbox.offer(sent)
        if keys is not None:
            await keys.keep(arrival, held)

    def _arrive(self, arrival: Arrival, held: KeyState) -> Steps[Decision]:
        return arrive_with_key(self._say, arrival, held, self._clock.now_ms(), self._service)


def idempotent(
    guard: Idempotent, connect: Callable[[], Any], outbox: EffectOutbox | None = None
) -> Callable[[Business], Listener]:
    """Make a listener of a function of (message, connection), whose database work happens once for each message.

    With an outbox the function has the `Effect` as a third argument, and sends by it.

    A coroutine function gets what `connect` returns, awaited if need be; another function runs in a thread.  Either way
    the connection or session is closed afterwards.
    """

    def around(business: Business) -> Listener:
        def blocking(message: Any) -> None:
            with closing(connect()) as connection, guard.effect(connection, message, outbox) as effect:
                if effect:
                    _refuse_unexecuted(business(message, connection, *(() if outbox is None else (effect,))))

        async def listener(message: Any) -> None:
            if not inspect.iscoroutinefunction(business):
                await asyncio.to_thread(blocking, message)
                return
            connection = await _awaited(connect())
            try:
                async with guard.effect_async(connection, message, outbox) as effect:
                    if effect:
                        await business(message, connection, *(() if outbox is None else (effect,)))
            finally:
                await _awaited(connection.close())

        return listener

    return around


def _refuse_unexecuted(result: object) -> None:
    """Raise TypeError, so that nothing is committed, when the business was not executed but only made."""
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError(
            "the business returned a coroutine, and nothing awaits it: a wrapper hides that its function is one; make "
            "the wrapper `async def` as well"
        )
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise TypeError("the business returned a generator, and nothing runs it: there is a `yield` in it; remove it")


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _effect(decision: Decision, arrival: Arrival, messages: Any) -> Effect:
    if decision in (Decision.LATER, Decision.ASK):
        raise _held(arrival)
    return Effect(decision, messages)


def _check_kept(is_there: bool, arrival: Arrival) -> None:
    if not is_there:
        raise AbortedTransactionError(
            f"the transaction of message {arrival.message_id} was rolled back inside of the block, by the program or "
            "the database (MySQL: a deadlock), so a commit would keep a part of the effect; let errors leave the block"
        )


def _held(arrival: Arrival) -> HeldElsewhereError:
    return HeldElsewhereError(
        f"another process of group {arrival.consumer_group} works on message {arrival.message_id}; it has to be "
        "delivered again"
    )
