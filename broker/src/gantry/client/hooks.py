"""Hooks around sends and around calls of listeners: for traces, metrics, logs, contexts.

A hook returns a context manager for each send or call.  It is entered before and left after, in the task of the send or
of the listener, so that context variables set in it are visible inside.  An exception of the send or call passes
through it.  Hooks are entered in their order and left in the reverse order.

A send hook may replace the messages before they are sent, for example to add properties of a trace.  Afterwards it
finds the result: of a transaction that of its half message, of a one-way send or a reply none.  An exception of a send
hook is raised to the sender; one of a consume hook counts as a failure of the listener.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import AbstractContextManager, ExitStack
from typing import Protocol

from gantry.client.received import ReceivedMessage
from gantry.client.results import SendResult
from gantry.client.tallies import Tallies
from gantry.errors import RemoteProtocolError
from gantry.model.message import Message


class Sending:
    """One send: its messages (several in a batch), its group, and afterwards the result."""

    def __init__(self, group: str, messages: list[Message]) -> None:
        self.group = group
        self.messages = messages  # a hook may replace them by others of the same topic
        self.result: SendResult | None = None  # None until a broker has acknowledged it


class SendHook(Protocol):
    """A hook around every send of a producer."""

    def sending(self, sending: Sending) -> AbstractContextManager[object]:
        """Return a context that is entered before the send and left when it has succeeded or failed."""
        ...


class ConsumeHook(Protocol):
    """A hook around every call of a listener."""

    def consuming(self, group: str, message: ReceivedMessage) -> AbstractContextManager[object]:
        """Return a context that is entered before the listener is called and left when it has returned or raised."""
        ...


def around_send(hooks: Iterable[SendHook], sending: Sending) -> ExitStack:
    """Return all hooks as one context, already entered."""
    with ExitStack() as stack:
        for hook in hooks:
            stack.enter_context(hook.sending(sending))
        return stack.pop_all()


async def called(
    listener: Callable[[ReceivedMessage], Awaitable[None]],
    message: ReceivedMessage,
    group: str,
    hooks: Collection[ConsumeHook],
    tallies: Tallies | None = None,
) -> None:
    """Call a listener within its hooks and count the call; RemoteProtocolError for an undecodable message."""
    if message.decode_error:
        raise RemoteProtocolError(message.decode_error)
    begun_s, is_good = 0.0 if tallies is None else tallies.now_s(), False
    try:
        if hooks:
            with ExitStack() as stack:
                for hook in hooks:
                    stack.enter_context(hook.consuming(group, message))
                await listener(message)
        else:
            await listener(message)
        is_good = not message.wants_again
    finally:
        if tallies is not None:
            tallies.consumed(message.topic, is_good, tallies.now_s() - begun_s)
