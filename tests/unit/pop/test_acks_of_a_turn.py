"""What one turn of the loop acknowledges and leases is one append, acknowledgements first."""

from collections.abc import Sequence

from gantry.errors import Refusal
from gantry.leaves import delays, frames
from gantry.store.settings import Flush
from gantry.wire.bodies import loads
from gantry.wire.codes import ResponseCode
from testkit.popplay import Popped, ack_request, batch_ack_request, pop_request, popped
from testkit.popstoreplay import PopPlay


def _popped(play: PopPlay, count: int = 1) -> list[Popped]:
    return popped(play.ask_now(pop_request(count)))


def _recorded(play: PopPlay) -> list[list[bytes | None]]:
    """The tags of the records of each append from now on."""
    appends: list[list[bytes | None]] = []
    append = play.store.append

    def noted(sends: Sequence[frames.Send], *more: bool, **named: bool) -> int:
        appends.append([delays.last(send.properties, b"TAGS") for send in sends])
        return append(sends, *more, **named)

    play.store.append = noted  # type: ignore[method-assign]
    return appends


def test_acknowledgements_stand_before_the_lease_that_comes_with_them() -> None:
    play = PopPlay(Flush.ASYNC)
    for number in range(4):
        play.send(b"m%d" % number, topic="orders")
    first, second = _popped(play), _popped(play)
    appends = _recorded(play)
    acks = [play.give(ack_request(first[0])), play.give(batch_ack_request(second))]
    third = play.give(pop_request(2))
    play.turn()
    play.flush()
    answers = {reply.opaque: reply for reply in play.connection.take()}
    assert appends == [[b"ack", b"ack", b"ck"]]
    assert [answers[one].code for one in acks] == [0, 0] and len(popped(answers[third])) == 2
    play.close()


def test_a_batch_that_is_refused_in_the_middle_acknowledges_nothing_later() -> None:
    play = PopPlay(Flush.ASYNC)
    for number in range(3):
        play.send(b"m%d" % number, topic="orders")
    (first,) = _popped(play)
    (in_order,) = popped(play.ask_now(pop_request(1, order="true")))
    play.gate.shut("test", Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "no room"))
    assert play.ask_now(batch_ack_request([first, in_order])).code == ResponseCode.SERVICE_NOT_AVAILABLE
    play.gate.reopen("test")
    assert len(_popped(play)) == 1
    assert play.pops.service.book.open == 2
    play.close()


def test_a_turn_that_cannot_be_written_acknowledges_and_leases_nothing() -> None:
    play = PopPlay(Flush.ASYNC)
    for number in range(2):
        play.send(b"m%d" % number, topic="orders")
    (first,) = _popped(play)
    play.gate.shut("test", Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "no room"))
    ack, pop = play.give(ack_request(first)), play.give(pop_request())
    play.turn()
    answers = {reply.opaque: reply for reply in play.connection.take()}
    assert answers[ack].code == answers[pop].code == ResponseCode.SERVICE_NOT_AVAILABLE
    play.gate.reopen("test")
    assert play.ask_now(ack_request(first)).ext["gantryVerdict"] == "open", "it was not acknowledged before"
    assert [one.body for one in _popped(play)] == [b"m1"]
    play.close()


def test_a_batch_says_which_messages_were_acknowledged_before() -> None:
    play = PopPlay(Flush.ASYNC)
    for number in range(4):
        play.send(b"m%d" % number, topic="orders")
    found = _popped(play, 4)
    assert play.ask_now(batch_ack_request(found[1:2])).body == b""
    assert loads(play.ask_now(batch_ack_request(found)).body) == {"stale": [[0, found[1].offset]]}
    assert loads(play.ask_now(batch_ack_request(found)).body) == {"stale": [[0, one.offset] for one in found]}
    assert play.pops.service.counts.acked == 4
    play.close()


def test_two_batches_of_a_turn_with_the_same_messages_acknowledge_them_once() -> None:
    play = PopPlay(Flush.ASYNC)
    for number in range(2):
        play.send(b"m%d" % number, topic="orders")
    found = _popped(play, 2)
    appends = _recorded(play)
    first, second = play.give(batch_ack_request(found)), play.give(batch_ack_request(found))
    play.turn()
    play.flush()
    answers = {reply.opaque: reply for reply in play.connection.take()}
    assert answers[first].body == b""
    assert loads(answers[second].body) == {"stale": [[0, one.offset] for one in found]}
    assert appends == [[b"bAck"]]
    play.close()
