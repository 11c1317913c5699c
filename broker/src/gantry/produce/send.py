"""Handling runs of sends: which messages are appended together, in which order, and how they are answered.

One connection's wake-up brings a run of messages.  Most are plain (their topic has no specialities, their queue exists,
they are short enough, they ask for nothing unusual): a run of nothing else is only gathered, and what one turn of the
loop brought is appended at its end, all connections together.  In any other run each message that is not plain goes
through `admit`, which refuses it or makes it ready; such a run is appended for itself, behind what was gathered before
it; half messages (see `transaction.half`) and delayed ones (`schedule.disguise`) are runs of their own behind it.  A
run of nothing but halves is gathered like a plain one and appended behind those: consumers do not see halves, so their
order among plain messages does not matter.  A batch request is appended for itself; what was gathered before is
appended first, so the order per connection is kept.

At most about a read buffer's worth is gathered, and nothing stays gathered when the turn ends.  It is appended before
any other request is handled for which it matters (a topic deleted).

Refused messages are answered at once, before the run is; replies may come in any order, `opaque` pairs them.
One-way requests are never answered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from gantry.append.admit import NOT_PLAIN, SYS_COMMIT_BIT, UNIQUE_KEY_BYTES_MAX, Admission
from gantry.append.batch import Appender, Halves, Handles, Run
from gantry.errors import Refusal
from gantry.leaves import frames, properties, runs
from gantry.leaves.records import SYS_TRANSACTION_BITS
from gantry.produce.batches import messages_of
from gantry.schedule.intake import DelayIntake
from gantry.transaction.intake import HalfIntake
from gantry.wire.command import refusal as refusal_to

if TYPE_CHECKING:
    from gantry.leaves.frames import Send
    from gantry.transport.connection import Connection


R = TypeVar("R", Run, Halves)

# Beyond this, writing more at once is not cheaper per message.
_GATHERED_BYTES_MAX = 256 << 10
# What a half may not have if it is to need no closer look than a plain message.
_NOT_PLAIN_HALF = NOT_PLAIN & ~properties.TRAIT_TRANSACTION


class SendHandler:
    """Takes the send requests of all connections; one per broker."""

    def __init__(
        self,
        admission: Admission,
        appender: Appender,
        batch_messages_max: int,
        halves: HalfIntake,
        delays: DelayIntake,
    ) -> None:
        self.refused: dict[int, int] = {}  # by response code
        self._admission = admission
        self._appender = appender
        self._batch_messages_max = batch_messages_max
        self._halves = halves
        self._delays = delays
        # Runs of this turn of the loop, to be appended at its end in this order.
        self._plain: list[Run] = []
        self._half_runs: list[Halves] = []
        self._delayed_runs: list[Halves] = []
        self.gathered_bytes = 0  # about: as they came over the wire; 0 only when there are none
        # The runs of the current or last call.  Of these, in `_begun`: refused messages with -1, others with the end
        # of the log before their append.
        self._under_way: Sequence[Run] = ()
        self._begun: list[tuple[int, Sequence[Send]]] = []

    def send_run(self, connection: Connection, sends: list[Send]) -> None:
        """Take what one connection sent: append it, gather it for `append_gathered`, or answer with a refusal."""
        run = (connection, sends)
        self._under_way = (run,)
        self._begun.clear()
        if self._admission.gate.refusal is not None:
            self._refuse(connection, sends, self._admission.gate.refusal)
        elif sends[0].traits & properties.TRAIT_TRANSACTION and self._take_usual_halves(connection, sends):
            self._gather(connection)
        elif self._are_plain(sends):
            self._plain.append(run)
            self._gather(connection)
        elif all(not send.batch and self._halves.wants(send) for send in sends):
            self._take_halves(connection, sends)
        elif (sorted_ones := self._sorted(sends)) is not None:
            self._take_sorted(connection, *sorted_ones)
        else:
            self.append_gathered()
            self._under_way = (run,)
            self._send_mixed(connection, sends)

    def gather(self, runs: list[Run]) -> bool:
        """Gather what several connections sent, when all of it is plain; else change nothing and return False."""
        self._under_way = runs
        self._begun.clear()
        is_open = self._admission.gate.refusal is None
        if not is_open or not self._are_plain([send for _, sends in runs for send in sends]):
            return False
        self._plain += runs
        self.gathered_bytes += sum([connection.batch_bytes for connection, _ in runs])
        if self.gathered_bytes >= _GATHERED_BYTES_MAX:
            self.append_gathered()
        return True

    def append_gathered(self) -> None:
        """Append what was gathered; each message is answered when it is confirmed."""
        plain, halves, delayed = self._plain, self._half_runs, self._delayed_runs
        self.gathered_bytes = 0
        if self._delays.hidden:
            self._delays.appended()
        if halves or delayed:
            self._half_runs, self._delayed_runs = [], []
            self._under_way = plain + [(connection, sends) for connection, sends, _ in halves + delayed]
        elif plain:
            self._under_way = plain
        else:
            return
        self._begun.clear()
        if plain:
            self._plain = []
            groups = {sends[0].group for _, sends in plain} if len(plain) > 1 else (plain[0][1][0].group,)
            for group in groups:
                self._halves.saw_plain(group)
            self._append_all(plain, self._appender.append_plain)
        if halves:
            self._append_all(halves, self._appender.append_halves)
        if delayed:
            for _, sends, _ in delayed:
                self._halves.saw_plain(sends[0].group)
            self._append_all(delayed, self._append_delayed)

    def _append_delayed(self, delayed: list[Halves]) -> Refusal | None:
        return self._appender.append_halves(delayed, self._delays.handles)

    def _gather(self, connection: Connection) -> None:
        self.gathered_bytes += connection.batch_bytes
        if self.gathered_bytes >= _GATHERED_BYTES_MAX:
            self.append_gathered()

    def _append_all(self, gathered: list[R], append: Callable[[list[R]], Refusal | None]) -> None:
        """Append runs as one, or one by one when that is refused: one message must not make the others be refused."""
        log_end = self._appender.written.offset
        for run in gathered:
            self._begun.append((log_end, run[1]))
        refusal = append(gathered)
        if refusal is None:
            return
        if len(gathered) == 1:
            connection, sends = gathered[0][:2]
            self._refuse(connection, sends, refusal)
            return
        del self._begun[-len(gathered) :]
        for run in gathered:
            self._append_all([run], append)

    def _are_plain(self, sends: Sequence[Send], traits: int = NOT_PLAIN, sys_flags: int = SYS_TRANSACTION_BITS) -> bool:
        """Return whether all messages are plain, and none has one of these traits and sys flags."""
        queues, limits = self._admission.queues, self._admission.limits
        sizes = limits.body_bytes_max, limits.properties_bytes_max, UNIQUE_KEY_BYTES_MAX
        return runs.plain(sends, queues, *sizes, traits, sys_flags) == len(sends)

    def _are_plain_of_batch(self, sends: Sequence[Send]) -> bool:
        found = self._sorted(sends)
        return found is not None and not found[1]

    def _sorted(self, sends: Sequence[Send]) -> tuple[list[Send], list[Send]] | None:
        """Return the plain and the delayed messages of a run without others; None when there are others."""
        admission, limits = self._admission, self._admission.limits
        sizes = limits.body_bytes_max, limits.properties_bytes_max, UNIQUE_KEY_BYTES_MAX
        return runs.sort(sends, admission.queues, admission.typed, *sizes)

    def _take_sorted(self, connection: Connection, plain: list[Send], delayed: list[Send]) -> None:
        gathered: list[Run] = [(connection, plain)] if plain else []
        hidden: list[Halves] = []
        queues = [send.queue_id for send in delayed]
        # One iterator for all rounds: `hide` ends with the message that needs a closer look.
        rest = iter(delayed)
        begin = 0
        while begin < len(delayed):
            end = begin + self._delays.hide(rest)
            if end > begin:
                hidden.append((connection, delayed[begin:end], queues[begin:end]))
                self._delays.hid(delayed[begin:end])
            if end < len(delayed):
                send = delayed[end]
                topic = send.topic
                refusal = self._delays.take(send)
                if refusal is not None:
                    self._refuse(connection, [send], refusal)
                elif send.topic == topic:
                    gathered.append((connection, [send]))  # it is due, so it is a plain one
                else:
                    hidden.append((connection, [send], queues[end : end + 1]))
            begin = end + 1
        # Only now: of a run that failed half-way nothing may be appended.
        self._plain += gathered
        self._delayed_runs += hidden
        if gathered or hidden:
            self._gather(connection)

    def _send_mixed(self, connection: Connection, sends: list[Send]) -> None:
        """Append the messages that are admitted, which are answered when confirmed; refuse the others now."""
        admission = self._admission
        run: list[Send] = []
        halves: list[Send] = []
        delayed: list[Send] = []
        for send in sends:
            if send.batch:
                self._append_plain(connection, run)
                run = []
                self._send_batch(connection, send)
            else:
                refusal = admission.admit(send)
                if refusal is not None:
                    self._refuse(connection, (send,), refusal)
                elif self._halves.wants(send):
                    halves.append(send)
                elif self._delays.wants(send):
                    delayed.append(send)
                else:
                    run.append(send)
        self._append_plain(connection, run)
        if halves:
            self._append(connection, *self._take_accepted(connection, halves, self._take_half))
        if delayed:
            self._halves.saw_plain(delayed[0].group)
            taken, queues = self._take_accepted(connection, delayed, self._delays.take)
            self._append(connection, taken, queues, self._delays.handles)
            self._delays.appended()

    def unanswered(self) -> list[Run]:
        """After an exception: return the messages of the failed call that are neither in the log nor refused.

        Those in the log may have their answer already, or one parked; a second one would take it back.
        """
        log_end = self._appender.written.offset
        begun = {id(send) for before, part in self._begun if before < log_end for send in part}
        return [(peer, [send for send in sends if id(send) not in begun]) for peer, sends in self._under_way]

    def _take_half(self, send: Send) -> Refusal | None:
        # A delay counts from the commit on, which can refuse nothing any more.
        return (self._delays.fault(send) if self._delays.wants(send) else None) or self._halves.take(send)

    def _take_usual_halves(self, connection: Connection, sends: list[Send]) -> bool:
        """Gather a run of halves of which none needs a closer look; return False when one does."""
        if not self._are_plain(sends, _NOT_PLAIN_HALF, SYS_COMMIT_BIT):
            return False
        queues = self._halves.take_run(sends)
        if queues is None:
            return False
        self._half_runs.append((connection, sends, queues))
        return True

    def _take_halves(self, connection: Connection, sends: list[Send]) -> None:
        if self._are_plain(sends, _NOT_PLAIN_HALF, SYS_COMMIT_BIT):
            taken, queues = self._take_accepted(connection, sends, self._halves.take)
        else:
            admitted, _ = self._take_accepted(connection, sends, self._admission.admit)
            taken, queues = self._take_accepted(connection, admitted, self._take_half)
        if taken:
            self._half_runs.append((connection, taken, queues))
            self._gather(connection)

    def _take_accepted(
        self, connection: Connection, sends: list[Send], take: Callable[[Send], Refusal | None]
    ) -> tuple[list[Send], list[int]]:
        """Return the messages that `take` accepts, and the queues they were sent to; refuse the others."""
        taken: list[Send] = []
        queues: list[int] = []
        for send in sends:
            queue_id = send.queue_id
            refusal = take(send)
            if refusal is None:
                taken.append(send)
                queues.append(queue_id)
            else:
                self._refuse(connection, (send,), refusal)
        return taken, queues

    def _append_plain(self, connection: Connection, run: list[Send]) -> None:
        if run:
            self._halves.saw_plain(run[0].group)
            self._append(connection, run)

    def _append(
        self, connection: Connection, run: list[Send], queues: list[int] | None = None, handles: Handles | None = None
    ) -> None:
        """Append messages, whose answers name these queues where they were readdressed."""
        if not run:
            return
        self._begun.append((self._appender.written.offset, run))
        refusal = self._appender.append_run(connection, run, queues, handles)
        if refusal is not None:
            self._refuse(connection, run, refusal)

    def _send_batch(self, connection: Connection, request: Send) -> None:
        refusal = self._admission.admit_batch(request)
        if refusal is None:
            limits, topic = self._admission.limits, self._admission.limits_of(request.topic)
            found = messages_of(request, limits, self._batch_messages_max, topic, self._are_plain_of_batch)
            if isinstance(found, Refusal):
                refusal = found
            else:
                messages, is_scanned = found
                self._halves.saw_plain(request.group)
                self._begun.append((self._appender.written.offset, (request,)))
                refusal = self._appender.append_together(connection, request, messages, is_scanned)
        if refusal is not None:
            self._refuse(connection, (request,), refusal)

    def _refuse(self, connection: Connection, sends: list[Send] | tuple[Send, ...], refusal: Refusal) -> None:
        self._begun.append((-1, sends))
        self.refused[refusal.code] = self.refused.get(refusal.code, 0) + len(sends)
        for send in sends:
            if not send.is_oneway:
                connection.write(frames.encode(refusal_to(send, refusal)))
