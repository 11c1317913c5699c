"""Popped messages without sockets: the real handlers on a simulated disk, life after life.

    play = PopPlay(Flush.SYNC)
    play.send(b"m1")
    play.flush()
    reply = play.call(pop_request())        # None while the disk has not got its lease
    play.pass_ms(1000)
    play.crash(rng)

Consumer offsets are saved with each tick, a second apart, on the simulated disk like everything else.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from gantry.consume.filterdata import ConsumerFilters
from gantry.consume.pull import PullChecks
from gantry.leaves import frames
from gantry.metadata.clients import ClientLimits, Clients
from gantry.metadata.groups import Groups, GroupSettings
from gantry.metadata.offsets import Offsets
from gantry.metadata.starts import GroupStarts
from gantry.model.subscription import GroupConfig
from gantry.pop import parts
from gantry.pop.held import HeldLimits
from gantry.pop.service import PopContext, PopRules
from gantry.store import filenames
from gantry.store.statefile import JsonState
from gantry.wire.codes import RequestCode
from testkit.delayplay import DelayPlay
from testkit.memory_state import MemoryState, SavedAtOnce
from testkit.popplay import BROKER, GROUP

RULES = PopRules(BROKER, "c", from_retry_share=0.5)


class PopPlay(DelayPlay):
    """One broker's pops, one life after the other."""

    def open(self) -> None:
        """A new life on the disk."""
        super().open()
        self.groups = Groups(self.group_state, self.clock, GroupSettings())
        self.groups.put(GroupConfig(GROUP, retry_times_max=1000))
        state = JsonState(
            filenames.config("/store", "consumerOffset.json"),
            self.disk,
            self.background.housekeeper,
            lambda path, error: None,
        )
        self.offsets = Offsets(state, self.clock)
        self.offsets.log_end = lambda: self.store.written.offset
        self.offsets.catch_up(self.store.generations.all(), lambda name: True)
        self.offsets.bound(self.store.next_queue_offset)
        self.soon: list[Callable[[], None]] = []
        checks = PullChecks(
            self.topics,
            self.groups,
            Clients(ClientLimits()),
            ConsumerFilters(MemoryState(), self.clock, lambda cause, text: None),
            "127.0.0.1:10911",
        )
        context = PopContext(
            self.store,
            self.topics,
            self.groups,
            self.offsets,
            self.acks,
            self.gate,
            self.steady,
            RULES,
            self._say,
            GroupStarts(self.offsets, self.topics, self.store, self.store.settings.warm_bytes),
            SavedAtOnce(),
        )
        chance, limits, waiting = random.Random(7), HeldLimits(), self.service.waiting
        self.pops = parts.make(context, MemoryState(), checks, chance, self.soon.append, limits, waiting)
        self.topics.on_delete(lambda topic: self.offsets.begin_again(topic.name, self.store.generations.of(topic.name)))
        self.topics.on_delete(lambda topic: self.pops.topic_deleted(topic.name))
        self.groups.on_change(self.pops.service.group_changed)
        pending, self.service.book.leases = self.service.book.leases, []
        for _ in self.pops.recover(pending):
            pass

    def give(self, command: frames.Command) -> int:
        """Hand a request over; return its number."""
        command.opaque = next(self._opaques)
        on = self.pops
        handler = {
            RequestCode.POP_MESSAGE: on.pops.pop,
            RequestCode.PEEK_MESSAGE: on.pops.peek,
            RequestCode.ACK_MESSAGE: on.acks.ack,
            RequestCode.BATCH_ACK_MESSAGE: on.acks.batch_ack,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: on.acks.change,
            RequestCode.FORWARD_TO_DLQ: on.acks.forward_to_dlq,
        }[RequestCode(command.code)]
        answer = handler(self.connection, command)  # type: ignore[arg-type]
        if answer is not None:
            self.connection.write(frames.encode(answer))
        return command.opaque

    def turn(self) -> None:
        """The end of a turn of the loop."""
        calls, self.soon[:] = self.soon[:], []
        for call in calls:
            call()

    def call(self, command: frames.Command) -> frames.Command | None:
        """A request and its answer; None while that waits for the disk."""
        opaque = self.give(command)
        self.turn()
        found = [reply for reply in self.connection.take() if reply.opaque == opaque]
        return found[0] if found else None

    def ask_now(self, command: frames.Command) -> frames.Command:
        """A request, and its answer after a flush."""
        opaque = self.give(command)
        self.turn()
        self.flush()
        (found,) = [reply for reply in self.connection.take() if reply.opaque == opaque]
        return found

    def deliver(self) -> None:
        """What is due now, and what has ended."""
        super().deliver()
        for _ in self.pops.reviver.run():
            pass

    def tick(self) -> None:
        """What is due every second."""
        super().tick()
        for _ in self.pops.service.tick():
            pass
        for _ in self.pops.keeper.tick():
            pass
        for _ in self.offsets.saving():
            pass

    def close(self) -> None:
        """Stop in order."""
        self.flush()
        self.offsets.file.save_now()
        super().close()
