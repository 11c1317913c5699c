"""HTTP queues without sockets: what their server asks of a broker, on a simulated disk and clock, life after life.

    play = QueuePlay(life_s=60)
    play.put(b"first", priority=1)
    (one,) = play.take()
    play.done(one)                  # "open", "done", "stale"; "208" for a message whose life is over
    play.pass_durably(1_000)
    play.crash(rng)

Under SYNC_FLUSH; what is asked is flushed before it is answered.
"""

from __future__ import annotations

import asyncio
import itertools
import json

from gantry.model import httpqueue
from gantry.model.subscription import GroupConfig
from gantry.model.topic import TopicConfig
from gantry.pop.parts import retry_topics
from gantry.store.settings import Flush
from gantry.wire.codes import RequestCode, ResponseCode
from testkit.delayplay import Sent
from testkit.popplay import Popped, ack_request, change_request, changed, pop_request, popped
from testkit.popstoreplay import PopPlay

QUEUE, GROUP = "jobs", httpqueue.GROUP
RETRY = f"%RETRY%{GROUP}_{QUEUE}"


class QueuePlay(PopPlay):
    """One broker with one queue."""

    def __init__(self, life_s: int | None = None, **settings: int) -> None:
        self._ids = itertools.count(1)
        super().__init__(Flush.SYNC, **settings)
        self.make(life_s)

    def open(self) -> None:
        """A new life on the disk."""
        super().open()
        self.groups.put(GroupConfig(GROUP, retry_times_max=1_000_000))

    def make(self, life_s: int | None = None) -> None:
        """Make the queue, or make it again."""
        attributes = {httpqueue.ID: f"{next(self._ids):016x}"}
        self._save(attributes | ({} if life_s is None else {httpqueue.LIFE_S: str(life_s)}))

    def set_life(self, life_s: int) -> None:
        """Change the life of all messages."""
        config = self.topics.get(QUEUE)
        assert config is not None
        self._save(config.attributes | {httpqueue.LIFE_S: str(life_s)})

    def _save(self, attributes: dict[str, str]) -> None:
        self.topics.put(TopicConfig(QUEUE, 16, 16, attributes=attributes))
        self.topics.file.save_if_changed()

    def delete(self) -> None:
        """Delete the queue, and wait until that is kept."""
        config = self.topics.get(QUEUE)
        assert config is not None
        for name in [*retry_topics(config), QUEUE]:
            self.topics.delete(name)
        self.topics.file.save_if_changed()
        while self.store.deleting.kept < self.store.deleting.asked:
            self.tick()
            self.flush()

    def put(self, body: bytes, priority: int = 8, delay_ms: int = 0) -> Sent:
        """Send one message; its answer."""
        pairs = {"TIMER_DELAY_MS": str(delay_ms)} if delay_ms else {}
        sent = self.send(body, QUEUE, priority - 1, **pairs)
        self.flush()
        if sent.code != -1:
            return sent
        (reply,) = self.connection.take()
        return Sent(reply.code, sent.key, reply.ext.get("recallHandle", ""), reply.remark or "")

    def take(self, count: int = 16, visibility_ms: int = 30_000) -> list[Popped]:
        """Receive what is there, by priority."""
        ext = {"consumerGroup": GROUP, "topic": QUEUE, "gantryOrder": "priority"}
        reply = self.ask_now(pop_request(count, visibility_ms, **ext))
        assert reply.code in (ResponseCode.SUCCESS, ResponseCode.POLLING_TIMEOUT), reply.remark
        return popped(reply, GROUP) if reply.code == 0 else []

    def peek(self, count: int = 16) -> list[bytes]:
        """The bodies that a pop would get."""
        ext = {"consumerGroup": GROUP, "topic": QUEUE, "gantryOrder": "priority"}
        request = pop_request(count, **ext)
        request.code = RequestCode.PEEK_MESSAGE
        reply = self.ask_now(request)
        return [one.body for one in popped(reply, GROUP)] if reply.code == 0 else []

    def done(self, one: Popped) -> str:
        """Delete a received message; what its handle meant."""
        reply = self.ask_now(ack_request(one, group=GROUP))
        return reply.ext["gantryVerdict"] if reply.code == 0 else str(reply.code)

    def change(self, one: Popped, visibility_ms: int) -> Popped | None:
        """Change the visibility; the message with its new handle, None when it has none any more."""
        reply = self.ask_now(change_request(one, visibility_ms, consumerGroup=GROUP))
        assert reply.code in (ResponseCode.SUCCESS, ResponseCode.NO_MESSAGE), reply.remark
        return changed(one, reply) if reply.code == 0 else None

    def change_code(self, one: Popped) -> int:
        """The code of the answer to a change of visibility."""
        return self.ask_now(change_request(one, 1_000, consumerGroup=GROUP)).code

    def pass_durably(self, milliseconds: int, step_ms: int = 100) -> None:
        """Let time pass on a disk that is quick."""
        for _ in range(milliseconds // step_ms):
            self.pass_ms(step_ms)
            self.flush()
        self.tick()
        self.flush()

    def stats(self) -> tuple[int, int, int]:
        """Active, inactive and delayed messages."""
        command = self.command(RequestCode.QUEUE_STATS, topic=QUEUE, consumerGroup=GROUP)
        answer = asyncio.run(self.pops.stats.stats(self.connection, command))  # type: ignore[arg-type]
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        found = json.loads(answer.body)
        return found["active"], found["inactive"], found["delayed"]

    def peek_of(self, queue_id: int) -> list[bytes]:
        """The bodies that a pop of one priority would get."""
        ext = {"consumerGroup": GROUP, "topic": QUEUE, "gantryOrder": "priority", "queueId": queue_id}
        request = pop_request(16, **ext)
        request.code = RequestCode.PEEK_MESSAGE
        reply = self.ask_now(request)
        return [one.body for one in popped(reply, GROUP)] if reply.code == 0 else []

    def commit(self, handle: str, delay_ms: int = 1_000) -> str | None:
        """Give a delayed message another time; its new handle, None when that is refused."""
        answer = self.ask(RequestCode.RETIME_DELAYED, topic=QUEUE, recallHandle=handle, delayMs=delay_ms)
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.ILLEGAL_OPERATION), answer.remark
        return answer.ext["recallHandle"] if answer.code == 0 else None

    def cancel(self, handle: str) -> bool:
        """Delete a delayed message; whether it was still waiting."""
        answer = self.ask(RequestCode.RECALL_MESSAGE, topic=QUEUE, recallHandle=handle, producerGroup="g")
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.ILLEGAL_OPERATION), answer.remark
        return answer.code == 0
