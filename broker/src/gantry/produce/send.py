"""Runs of sends: the policy loop.

One connection's wake-up brings a run of messages.  The loop asks for each whether it is plain (its topic has no
specialities, its queue exists, it is short enough, it asks for nothing unusual) and collects it; whatever is
not plain goes through `admit`, which refuses it or makes it ready.  Then the whole run is appended at once; half
messages (see `transaction.half`) are a run of their own behind it.
 Order is kept: a batch request, which is appended for itself, first pushes out what came before it.

The loop costs about 0.25 us per plain message; it creates nothing per message, and asks no clock.

Refused messages are answered at once, before the run is; replies may come in any order, `opaque` pairs them.
 One-way requests are never answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gantry.append.admit import NOT_PLAIN, SYS_TRANSACTION_BITS, Admission
from gantry.append.batch import Appender
from gantry.errors import Refusal
from gantry.leaves import frames
from gantry.produce.batches import messages_of
from gantry.transaction.intake import HalfIntake
from gantry.wire.command import refusal as refusal_to

if TYPE_CHECKING:
    from gantry.leaves.frames import Send
    from gantry.transport.connection import Connection


class Sending:
    """Takes what producers send."""

    def __init__(self, admission: Admission, appender: Appender, batch_messages_max: int, halves: HalfIntake) -> None:
        self.refused: dict[int, int] = {}  # by response code
        self._admission = admission
        self._appender = appender
        self._batch_messages_max = batch_messages_max
        self._halves = halves
        # Of the run under way: refused messages with -1, others with the end of the log before their append.
        self._begun: list[tuple[int, Sequence[Send]]] = []

    def send_run(self, connection: Connection, sends: list[Send]) -> None:
        """Append the messages that may go in; answer them when they are confirmed and the others now."""
        self._begun.clear()
        admission = self._admission
        if admission.gate.refusal is not None:
            self._refuse(connection, sends, admission.gate.refusal)
            return
        queues = admission.queues
        body_bytes_max = admission.limits.body_bytes_max
        properties_bytes_max = admission.limits.properties_bytes_max
        run: list[Send] = []
        halves: list[Send] = []
        for send in sends:
            if (
                0 <= send.queue_id < queues.get(send.topic, 0)
                and not send.batch
                and not send.traits & NOT_PLAIN
                and not send.sys_flag & SYS_TRANSACTION_BITS
                and len(send.body) <= body_bytes_max
                and len(send.properties) <= properties_bytes_max
            ):
                run.append(send)
            elif send.batch:
                self._append(connection, run)
                run = []
                self._send_batch(connection, send)
            else:
                refusal = admission.admit(send)
                if refusal is not None:
                    self._refuse(connection, (send,), refusal)
                elif self._halves.wants(send):
                    halves.append(send)
                else:
                    run.append(send)
        self._append(connection, run)
        if halves:
            self._append_halves(connection, halves)
        self._begun.clear()

    def not_begun(self, sends: list[Send]) -> list[Send]:
        """Of a run in which something raised: the messages that are neither in the log nor refused.

        Those in the log may have their answer already, or one parked; a second one would take it back.
        """
        log_end = self._appender.log_end
        begun = {id(send) for before, part in self._begun if before < log_end for send in part}
        return [send for send in sends if id(send) not in begun]

    def _append_halves(self, connection: Connection, sends: list[Send]) -> None:
        halves: list[Send] = []
        queues: list[int] = []
        for send in sends:
            queue_id = send.queue_id
            refusal = self._halves.take(send)
            if refusal is None:
                halves.append(send)
                queues.append(queue_id)
            else:
                self._refuse(connection, (send,), refusal)
        if not halves:
            return
        self._begun.append((self._appender.log_end, halves))
        refusal = self._appender.append_run(connection, halves, queues)
        if refusal is not None:
            self._refuse(connection, halves, refusal)

    def _append(self, connection: Connection, run: list[Send]) -> None:
        if not run:
            return
        self._halves.saw_plain(run[0].group)
        self._begun.append((self._appender.log_end, run))
        refusal = self._appender.append_run(connection, run)
        if refusal is not None:
            self._refuse(connection, run, refusal)

    def _send_batch(self, connection: Connection, request: Send) -> None:
        refusal = self._admission.admit_batch(request)
        if refusal is None:
            messages = messages_of(request, self._admission.limits, self._batch_messages_max)
            if isinstance(messages, Refusal):
                refusal = messages
            else:
                self._begun.append((self._appender.log_end, (request,)))
                refusal = self._appender.append_together(connection, request, messages)
        if refusal is not None:
            self._refuse(connection, (request,), refusal)

    def _refuse(self, connection: Connection, sends: list[Send] | tuple[Send, ...], refusal: Refusal) -> None:
        self._begun.append((-1, sends))
        self.refused[refusal.code] = self.refused.get(refusal.code, 0) + len(sends)
        for send in sends:
            if not send.is_oneway:
                connection.write(frames.encode(refusal_to(send, refusal)))
