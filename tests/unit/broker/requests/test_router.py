"""One table, runs of hot requests, and a guard that lets nothing through."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gantry.broker.complaints import Complaints
from gantry.broker.requests import router as routing
from gantry.broker.requests.router import Router
from gantry.broker.requests.wrappers import Answer
from gantry.errors import RefusedError
from gantry.leaves import frames
from gantry.leaves.frames import Command
from gantry.transport.fairness import FairTurns
from gantry.wire.codes import UNSUPPORTED, RequestCode, ResponseCode
from gantry.wire.command import Request, reply
from gantry.wire.headers import HeaderError
from testkit.fake_connection import Chunk, FakeConnection
from testkit.simclock import SimClock

ASK, FAIL, REFUSE, LATER, SILENT, ILL, LONG = 1, 2, 3, 4, 5, 6, 7


class Play:
    def __init__(self) -> None:
        self.runs: list[tuple[str, list[int]]] = []
        self.fails = False
        self.connection = FakeConnection()
        self.go_on = asyncio.Event()
        table = {
            ASK: self.answer,
            FAIL: self.fail,
            REFUSE: self.refuse,
            LATER: self.later,
            SILENT: self.silent,
            ILL: self.ill,
            LONG: self.too_long,
            RequestCode.CONSUMER_SEND_MSG_BACK: self.answer,
        }
        complaints = Complaints(logging.getLogger("test"), SimClock())
        self.soon: list[Callable[[], None]] = []
        self.gathers = False
        self.gathered: list[tuple[FakeConnection, list[frames.Send]]] = []
        self.under_way: list[tuple[FakeConnection, list[frames.Send]]] = []
        self.router = Router(
            self, self.pulls, self.ends, self.send_backs, table, complaints, self.soon.append  # type: ignore[arg-type]
        )

    @property
    def gathered_bytes(self) -> int:
        return len(self.gathered)

    def ask(self, *requests: Request) -> list[Command]:
        self.router.on_requests(self.connection, list(requests))  # type: ignore[arg-type]
        return self.connection.take()

    def send_run(self, connection: FakeConnection, run: list[frames.Send]) -> None:
        self.gathered.append((connection, run))
        if not self.gathers:
            self.append_gathered()

    def gather(self, runs: list[tuple[FakeConnection, list[frames.Send]]]) -> bool:
        if self.gathers:
            self.gathered += runs
            if self.fails:
                self.append_gathered()
        return self.gathers

    def append_gathered(self) -> None:
        self.under_way, self.gathered = self.gathered, []
        if self.fails:
            raise ZeroDivisionError("division by zero")
        for _, run in self.under_way:
            self.runs.append(("send", [send.opaque for send in run]))

    def unanswered(self) -> list[tuple[FakeConnection, list[frames.Send]]]:
        return [(connection, run[1:] if len(run) > 2 else run) for connection, run in self.under_way]

    def pulls(self, connection: object, run: list[frames.Pull]) -> None:
        self.runs.append(("pull", [pull.opaque for pull in run]))

    def ends(self, connection: object, run: list[frames.End]) -> None:
        if self.fails:
            raise ZeroDivisionError("division by zero")
        self.runs.append(("end", [end.opaque for end in run]))

    def send_backs(self, run: Sequence[tuple[Any, Command]]) -> list[tuple[Any, Command]]:
        if self.fails:
            raise ZeroDivisionError("division by zero")
        self.runs.append(("back", [command.opaque for _, command in run]))
        return [one for one in run if one[1].ext]

    def answer(self, connection: object, command: Command) -> Command:
        self.runs.append(("cold", [command.opaque]))
        return reply(command)

    def fail(self, connection: object, command: Command) -> Command:
        raise ZeroDivisionError("division by zero")

    def refuse(self, connection: object, command: Command) -> Command:
        raise RefusedError(26, "no such group")

    def ill(self, connection: object, command: Command) -> Command:
        raise HeaderError("header field topic is missing")

    def too_long(self, connection: object, command: Command) -> Command:
        return reply(command, body=bytes(frames.FRAME_BYTES_MAX))

    def silent(self, connection: object, command: Command) -> Answer:
        return None

    async def later(self, connection: object, command: Command) -> Answer:
        await self.go_on.wait()
        return reply(command, 0, "late")


def sent(opaque: int, flag: int = 0) -> frames.Send:
    return frames.Send(code=310, opaque=opaque, rpc_flag=flag)


async def test_neighbours_of_one_kind_go_together_and_order_is_kept() -> None:
    play = Play()
    play.ask(sent(1), sent(2), frames.Pull(opaque=3), Command(ASK, opaque=4), sent(5))
    assert play.runs == [("send", [1, 2]), ("pull", [3]), ("cold", [4]), ("send", [5])]
    assert play.router.requests == {310: 3, 11: 1, ASK: 1}


def back(opaque: int, **ext: str) -> Command:
    return Command(RequestCode.CONSUMER_SEND_MSG_BACK, opaque=opaque, ext=ext)


async def test_the_send_backs_of_a_turn_go_together_and_those_that_are_left_go_one_by_one() -> None:
    play = Play()
    play.ask(back(1), back(2, odd="1"))
    play.ask(sent(3), back(4))
    assert play.runs == [("send", [3])] and len(play.soon) == 1
    play.soon.pop()()
    assert play.runs[1:] == [("back", [1, 2, 4]), ("cold", [2])]
    assert play.router.requests == {310: 1, RequestCode.CONSUMER_SEND_MSG_BACK: 3}
    assert [answer.opaque for answer in play.connection.take()] == [2]
    play.ask(back(5), Command(ASK, opaque=6), back(7))
    assert play.runs[3:] == [("back", [5]), ("cold", [6])]
    play.router.stop()
    assert play.runs[5:] == [("back", [7])]


async def test_send_backs_are_gathered_only_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "_SENT_BACK_MAX", 2)
    play = Play()
    play.ask(back(1), back(2), back(3))
    assert play.runs == [("back", [1, 2])]


async def test_a_send_back_that_is_too_large_is_refused_and_not_gathered() -> None:
    play = Play()
    (answer,) = play.ask(back(1, originMsgId="x" * 70_000))
    assert answer.code == ResponseCode.INVALID_PARAMETER and play.runs == []


async def test_send_backs_whose_run_raises_are_all_answered() -> None:
    play = Play()
    play.fails = True
    play.ask(back(1), back(2))
    play.soon.pop()()
    assert [(answer.opaque, answer.code) for answer in play.connection.take()] == [(1, 1), (2, 1)]
    assert play.router.errors == {RequestCode.CONSUMER_SEND_MSG_BACK: 1 + 1}


async def test_an_unknown_code_is_refused_with_what_to_do_instead() -> None:
    unknown, later = Play().ask(Command(777, opaque=1), Command(513, opaque=2))
    assert (unknown.code, unknown.remark) == (3, " request type 777 not supported")
    assert later.remark is not None and UNSUPPORTED[513] in later.remark


async def test_what_a_handler_raises_is_an_answer_a_count_and_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    play = Play()
    for number in range(5):
        (answer,) = play.ask(Command(FAIL, opaque=number))
        assert (answer.code, answer.remark) == (1, "ZeroDivisionError: division by zero")
    assert play.router.errors == {FAIL: 5} and len(caplog.records) == 1
    assert caplog.records[0].exc_info is not None


async def test_a_refusal_or_an_ill_formed_header_is_no_bug(caplog: pytest.LogCaptureFixture) -> None:
    play = Play()
    refused, ill = play.ask(Command(REFUSE, opaque=1), Command(ILL, opaque=2))
    assert (refused.code, refused.remark) == (26, "no such group")
    assert (ill.code, ill.remark) == (1, "header field topic is missing")
    assert not play.router.errors and not caplog.records


async def test_a_run_whose_handler_raises_is_answered_one_by_one() -> None:
    play = Play()
    play.fails = True
    assert [answer.opaque for answer in play.ask(sent(1), sent(2, flag=2))] == [1]


async def test_only_sends_that_did_not_begin_are_told_that_their_run_raised() -> None:
    play = Play()
    play.fails = True
    assert [answer.opaque for answer in play.ask(sent(1), sent(2), sent(3))] == [2, 3]


async def test_sends_that_are_gathered_are_appended_when_the_turn_ends() -> None:
    play = Play()
    play.gathers = True
    play.ask(sent(1), sent(2))
    play.ask(sent(3))
    (end_turn,) = play.soon
    assert not play.runs
    end_turn()
    assert play.runs == [("send", [1, 2]), ("send", [3])]
    play.ask(sent(4))
    assert len(play.soon) == 2, "the next turn has its own end"


async def test_sends_of_several_connections_are_gathered_at_once_or_come_one_by_one() -> None:
    play, other = Play(), FakeConnection()
    runs = [(play.connection, [sent(1), sent(2)]), (other, [sent(3)])]
    assert not play.router.on_sends(runs)  # type: ignore[arg-type]
    assert not play.runs and not play.soon and not play.router.requests
    play.gathers = True
    assert play.router.on_sends(runs)  # type: ignore[arg-type]
    (end_turn,) = play.soon
    end_turn()
    assert play.runs == [("send", [1, 2]), ("send", [3])]
    assert play.router.requests[sent(1).code] == 3


async def test_when_gathering_those_of_several_connections_raises_everybody_hears_of_it() -> None:
    play, other = Play(), FakeConnection()
    play.gathers = play.fails = True
    assert play.router.on_sends([(play.connection, [sent(1)]), (other, [sent(2)])])  # type: ignore[arg-type]
    answers = play.connection.take() + other.take()
    assert [(answer.opaque, answer.code) for answer in answers] == [(1, 1), (2, 1)]


async def test_sends_that_are_gathered_are_appended_before_anything_that_could_notice() -> None:
    play = Play()
    play.gathers = True
    play.ask(sent(1), Command(ASK, opaque=2))
    assert play.runs == [("send", [1]), ("cold", [2])]
    play.ask(sent(3))
    play.router.stop()
    assert play.runs[-1] == ("send", [3])


async def test_the_end_of_a_transaction_leaves_what_is_gathered_to_the_end_of_the_turn() -> None:
    play = Play()
    play.gathers = True
    play.ask(sent(1), frames.End(opaque=2), sent(3))
    assert play.runs == [("end", [2])]
    play.soon[0]()
    assert play.runs[1:] == [("send", [1, 3])]


async def test_everybody_whose_sends_were_gathered_hears_that_appending_them_raised() -> None:
    play, other = Play(), FakeConnection()
    play.gathers = True
    play.ask(sent(1))
    play.router.on_requests(other, [sent(2)])  # type: ignore[arg-type]
    play.fails = True
    play.soon[0]()
    answers = play.connection.take() + other.take()
    assert [(answer.opaque, answer.code) for answer in answers] == [(1, 1), (2, 1)]


async def test_one_way_requests_are_never_answered() -> None:
    play = Play()
    assert play.ask(*[Command(code, flag=2) for code in (ASK, FAIL, REFUSE, ILL, 777)]) == []
    assert play.ask(Command(SILENT)) == []


async def test_an_answer_may_come_later_and_does_not_hold_up_others() -> None:
    play = Play()
    assert [answer.opaque for answer in play.ask(Command(LATER, opaque=1), Command(ASK, opaque=2))] == [2]
    play.go_on.set()
    for _ in range(5):
        await asyncio.sleep(0)
    (late,) = play.connection.take()
    assert (late.opaque, late.remark) == (1, "late")


async def test_a_request_that_comes_in_the_turn_of_the_stop_is_given_up_in_silence() -> None:
    play = Play()
    assert play.ask(Command(LATER, opaque=1)) == []
    play.router.stop()
    await play.router.answered()
    assert play.connection.take() == []


async def test_too_many_answers_under_way_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "_TASKS_MAX", 6)
    play = Play()
    refused = play.ask(*[Command(LATER, opaque=number) for number in range(3)])
    assert [(answer.opaque, answer.code) for answer in refused] == [(2, 2)], "one connection has a third"
    greedy, play.connection = play.connection, FakeConnection("10.0.0.2:1")
    assert play.ask(Command(LATER, opaque=4)) == [], "another client is served"
    play.connection = greedy
    play.go_on.set()
    await play.router.answered()
    assert len(greedy.take()) == 2
    play.go_on.clear()
    assert play.ask(Command(LATER, opaque=5), Command(LATER, opaque=6)) == [], "their places are free again"
    await asyncio.sleep(0)
    play.router.stop()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert play.connection.take() == []


def test_the_table_and_the_list_of_the_unsupported_do_not_overlap() -> None:
    lines = inspect.getsource(routing.table)
    served = {code for code in RequestCode if f"RequestCode.{code.name}:" in lines}
    assert len(served) > 20
    assert not served & UNSUPPORTED.keys()


async def test_sends_and_ends_that_came_mixed_are_one_run_of_each_if_nothing_else_came() -> None:
    play = Play()
    mixed = [frames.End(opaque=1), sent(2), frames.End(opaque=3), sent(4)]
    play.ask(*mixed)
    play.ask(*mixed[1:])
    assert play.runs == [("end", [1, 3]), ("send", [2, 4]), ("send", [2, 4]), ("end", [3])]
    play.runs.clear()
    play.ask(mixed[0], Command(ASK, opaque=9), *mixed[2:])
    assert play.runs == [("end", [1]), ("cold", [9]), ("end", [3]), ("send", [4])]


async def test_ends_of_transactions_go_together_and_are_answered_when_their_handler_raises() -> None:
    play = Play()
    assert play.ask(frames.End(opaque=1), frames.End(opaque=2)) == [] and play.runs == [("end", [1, 2])]
    play.fails = True
    answers = play.ask(frames.End(opaque=3), frames.End(opaque=4, rpc_flag=2))
    assert [(answer.opaque, answer.code) for answer in answers] == [(3, 1)]
    assert play.router.requests == {37: 4} and play.router.errors == {37: 1}


async def test_few_long_answers_are_made_at_a_time_and_none_for_a_peer_that_does_not_read() -> None:
    turns, go_on = FairTurns(2), asyncio.Event()
    under_way: list[int] = []

    async def walk(connection: object, command: Command) -> Command:
        under_way.append(command.opaque)
        await go_on.wait()
        return reply(command)

    handler = routing.long(walk, turns)
    reader, other, gone, modest = (FakeConnection(f"10.0.0.{number}:1") for number in range(4))
    asked = [(reader, 1), (reader, 2), (reader, 3), (reader, 6), (other, 4), (gone, 5), (modest, 7)]
    answers = [
        asyncio.ensure_future(handler(connection, Command(1, opaque=opaque)))  # type: ignore[arg-type]
        for connection, opaque in asked
    ]
    for _ in range(5):
        await asyncio.sleep(0)
    assert under_way == [1, 2]
    other.is_writable = False
    gone.close("gone")
    go_on.set()
    one, two, three, four, unread, nothing, fair = await asyncio.gather(*answers)
    assert not any(answer.code for answer in (one, two, three, four, fair))
    assert under_way == [1, 2, 3, 7, 6], "a client that asks for one does not wait behind all of another's"
    assert unread.code == ResponseCode.SYSTEM_BUSY and "read them and ask again" in unread.remark
    assert nothing is None


async def test_what_stands_behind_the_request_that_ended_its_connection_is_not_carried_out() -> None:
    class Full(FakeConnection):
        def write(self, data: Chunk) -> None:
            super().write(data)
            self.closed = True

    play = Play()
    play.connection = Full()
    play.ask(*(Command(ASK, opaque=number) for number in range(3)))
    assert play.runs == [("cold", [0])]


async def test_what_there_is_no_time_for_waits_and_so_does_all_that_stands_behind_it() -> None:
    play = Play()
    play.connection.has_time = False
    answers = play.ask(Command(ASK, opaque=1), Command(ASK, opaque=2), sent(3), Command(ASK, opaque=4))
    assert [answer.opaque for answer in answers] == [1] and play.runs == [("cold", [1])]
    assert [request.opaque for request in play.connection.postponed] == [2, 3, 4]
    rest, play.connection.postponed, play.connection.has_time = play.connection.postponed, [], True
    assert [answer.opaque for answer in play.ask(*rest)] == [2, 4]
    assert play.runs[1:] == [("cold", [2]), ("send", [3]), ("cold", [4])]


async def test_an_answer_that_is_too_long_for_a_frame_is_refused_and_the_next_request_is_served() -> None:
    play = Play()
    long, short = play.ask(Command(LONG, opaque=1), Command(ASK, opaque=2))
    assert long.code == ResponseCode.SYSTEM_ERROR and "too long" in (long.remark or "") and short.code == 0
