"""The budget of output that is not read, without sockets."""

from __future__ import annotations

from collections.abc import Callable

from gantry.transport.output import NOTED_BYTES_MIN, OutputBudget

MIB = 1 << 20


class Peer:
    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.kept_bytes = 0
        self.reason = ""

    def abort(self, reason: str) -> None:
        self.reason = reason
        self.kept_bytes = 0


class Play:
    def __init__(self, bytes_max: int) -> None:
        self.soon: list[Callable[[], None]] = []
        self.budget = OutputBudget(bytes_max, self.soon.append)

    def keep(self, peer: Peer, count: int) -> None:
        peer.kept_bytes = count
        self.budget.note(peer, count)

    def turn(self) -> None:
        calls, self.soon[:] = list(self.soon), []
        for call in calls:
            call()


def test_over_the_total_the_largest_of_the_host_that_keeps_most_is_closed() -> None:
    play = Play(10 * MIB)
    slow = Peer("10.0.0.1:1")
    many = [Peer(f"10.0.0.2:{number}") for number in range(8)]
    play.keep(slow, 4 * MIB)
    for nth, one in enumerate(many):
        play.keep(one, MIB - 8 + nth)
    assert len(play.soon) == 1, "once a turn"
    play.turn()
    assert not slow.reason and [bool(one.reason) for one in many] == [False] * 6 + [True] * 2
    assert play.budget.noted == sum(one.kept_bytes for one in (slow, *many)) and play.budget.closed == 2
    assert "1048575 bytes wait for this peer to read" in many[7].reason


def test_what_has_left_meanwhile_closes_nobody() -> None:
    play = Play(MIB)
    peers = [Peer(f"10.0.0.1:{number}") for number in range(4)]
    for one in peers:
        play.keep(one, MIB)
        one.kept_bytes = NOTED_BYTES_MIN  # sent by the end of the turn
    play.turn()
    assert not any(one.reason for one in peers) and play.budget.noted == 0 and not play.budget._of


def test_many_are_closed_in_several_turns_and_looked_at_once_in_each() -> None:
    play = Play(100 * MIB)
    peers = [Peer(f"10.0.{number % 7}.1:{number}") for number in range(700)]
    for one in peers:
        play.keep(one, MIB)
    closed = []
    while play.soon:
        play.turn()
        closed.append(play.budget.closed)
    assert closed == [256, 512, 600] and play.budget.noted == 100 * MIB
    assert len({peer.peer.split(":")[0] for peer in peers if not peer.reason}) == 7, "no host loses all"


def test_a_connection_that_is_gone_is_not_counted() -> None:
    play = Play(MIB)
    one, other = Peer("10.0.0.1:1"), Peer("10.0.0.1:2")
    play.keep(one, MIB)
    play.keep(one, MIB // 2)
    play.budget.forget(one)
    play.budget.forget(other)
    play.keep(other, MIB)
    assert play.budget.noted == MIB and not play.soon


def test_the_budget_is_kept_again_in_every_later_turn() -> None:
    play = Play(MIB)
    for number in range(3):
        play.keep(Peer(f"10.0.0.1:{number}"), 2 * MIB)
        play.turn()
        assert play.budget.closed == number + 1 and not play.soon
