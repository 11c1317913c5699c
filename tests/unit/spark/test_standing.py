"""What of a checkpoint holds against what brokers say, and each way in which it does not."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pytest

from pyspark_gantrymq import offsets, standing
from pyspark_gantrymq.offsets import BrokerTopic, Identity, Offset, Queue
from pyspark_gantrymq.standing import Ends, Outage, Seen

A, B = Queue("orders", "broker-a", 0), Queue("orders", "broker-b", 0)
ON_A, ON_B = BrokerTopic("orders", "broker-a"), BrokerTopic("orders", "broker-b")
OURS = Identity({"broker-a": "ours"}, {ON_A: 0})


def start(at: Mapping[Queue, int], whose: Identity = OURS) -> Offset:
    return offsets.end(at, {}, {}, whose)


def known(of: Offset, seen: Seen, is_strict: bool = True, last: Mapping[Queue, int] | None = None) -> dict[Queue, int]:
    return standing.known(of, seen, is_strict, last or {})


def test_what_is_as_it_was_holds() -> None:
    assert known(start({A: 5}), Seen({A: Ends(0, 9)}, OURS)) == {A: 5}


@pytest.mark.parametrize("is_strict", [True, False])
def test_another_cluster_is_always_an_error(is_strict: bool) -> None:
    seen = Seen({A: Ends(0, 9)}, Identity({"broker-a": "theirs"}, {ON_A: 0}))
    with pytest.raises(RuntimeError, match=r"of cluster ours \(broker group broker-a\).*leads to cluster theirs"):
        known(start({A: 5}), seen, is_strict)


@pytest.mark.parametrize("is_strict", [True, False])
def test_a_cluster_without_any_known_group_is_another_one(is_strict: bool) -> None:
    seen = Seen({B: Ends(0, 9)}, Identity({"broker-b": "theirs"}, {ON_B: 0}), gone={"broker-a": "not in the route"})
    with pytest.raises(RuntimeError, match=r"broker-b is of another cluster \(theirs\)"):
        known(start({A: 5}), seen, is_strict)


def test_a_topic_made_again_that_has_grown_is_an_error_that_says_what_helps() -> None:
    seen = Seen({A: Ends(0, 900)}, Identity({"broker-a": "ours"}, {ON_A: 3}))
    said = r"made again on broker-a \(generation 0 before, 3 now\); option failOnDataLoss=false .* at least 2 messages"
    with pytest.raises(RuntimeError, match=said):
        known(start({A: 5}), seen, last={A: 7})


def test_a_topic_made_again_is_read_from_its_beginning_and_losses_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    seen, was = Seen({A: Ends(0, 3)}, Identity({"broker-a": "ours"}, {ON_A: 3})), start({A: 5})
    with caplog.at_level(logging.WARNING):
        held = known(was, seen, is_strict=False, last={A: 9})
    assert held == {} and standing.unknown(was, held, seen) == {A: Ends(0, 3)}
    assert "at least 4 messages of the former were not read" in caplog.text
    assert standing.whose(was, seen, {A: 0}) == Identity({"broker-a": "ours"}, {ON_A: 3})


@pytest.mark.parametrize("was", [offsets.NOBODY, OURS])
def test_where_one_side_says_nothing_nothing_is_compared(was: Identity) -> None:
    now = OURS if was is offsets.NOBODY else offsets.NOBODY
    assert known(start({A: 5}, was), Seen({A: Ends(0, 9)}, now)) == {A: 5}
    assert standing.whose(start({A: 5}, was), Seen({A: Ends(0, 9)}, now), {A: 5}) == OURS


def test_an_end_that_went_back_in_one_life_names_the_failover_and_the_count() -> None:
    with pytest.raises(RuntimeError, match=r"ends at 3, 5 was read: 2 messages that were read are gone .* failover"):
        known(start({A: 5}), Seen({A: Ends(0, 3)}, OURS), is_strict=False)
    with pytest.raises(RuntimeError, match="ends at 3, 5 was read; was the topic made again"):
        known(start({A: 5}, offsets.NOBODY), Seen({A: Ends(0, 3)}))


def test_a_slave_may_be_behind_or_begin_later_than_its_master() -> None:
    for ends in (Ends(0, 3), Ends(8, 9)):
        assert known(start({A: 5}), Seen({A: ends}, OURS, behind=frozenset({ON_A}))) == {A: 5}


def test_what_retention_took_is_an_error_or_left_to_the_tasks() -> None:
    seen = Seen({A: Ends(8, 9)}, OURS)
    with pytest.raises(RuntimeError, match="messages 5 to 7 are gone, 3 in all; option failOnDataLoss=false"):
        known(start({A: 5}), seen)
    assert known(start({A: 5}), seen, is_strict=False) == {A: 5}


def test_a_new_group_of_a_strange_cluster_waits_until_the_known_ones_are_there() -> None:
    was, seen = start({A: 5}), Seen({B: Ends(0, 9)}, Identity({"broker-b": "theirs"}, {ON_B: 0}))
    assert standing.unknown(was, {A: 5}, seen) == {B: Ends(0, 9)}
    away = Seen(seen.ends, seen.whose, away={"broker-a": "no answer"})
    assert standing.unknown(was, {A: 5}, away) == {}
    ours = Seen(seen.ends, Identity({"broker-b": "ours"}, {ON_B: 0}), away={"broker-a": "no answer"})
    assert standing.unknown(was, {A: 5}, ours) == {B: Ends(0, 9)}


def test_who_is_away_is_remembered_as_who_it_was() -> None:
    was = start({A: 5, B: 7}, Identity({"broker-a": "ours", "broker-b": "ours"}, {ON_A: 0, ON_B: 2}))
    seen = Seen({A: Ends(0, 9)}, OURS, away={"broker-b": "no answer"})
    assert standing.whose(was, seen, {A: 9, B: 7}) == offsets.identity(was)


def test_what_nobody_reads_any_more_is_counted_as_far_as_it_is_known() -> None:
    other = Queue("dead", "broker-a", 0)
    was, last = start({A: 5, B: 7, other: 3}), {A: 9, B: 10, other: 8}
    seen = Seen({A: Ends(0, 9)}, OURS, gone={"broker-b": "not in the route", "topic dead": "not there any more"})
    assert [standing.unread(name, was, last, seen) for name in seen.gone] == [3, 5]
    assert standing.unread("topic dead", was, {}, seen) == 0


def test_an_outage_ends_a_query_when_it_has_been_long_enough_without_a_break() -> None:
    outage = Outage(10)
    outage.note({"broker-a": "no answer"}, 0)
    outage.note({"broker-a": "no answer", "broker-b": "no answer"}, 9)
    assert outage.is_on
    outage.note({"broker-b": "no answer"}, 9.5)
    outage.note({"broker-a": "no answer", "broker-b": "no answer"}, 18)
    with pytest.raises(RuntimeError, match=r"broker-b is away for 10 s \(option maxOutage\): no answer"):
        outage.note({"broker-a": "no answer", "broker-b": "no answer"}, 19)
    outage.note({}, 20)
    assert not outage.is_on


def test_a_queue_that_its_topic_has_no_more_is_an_error_while_it_has_messages_that_were_not_read() -> None:
    one, read = Queue("orders", "broker-a", 1), Queue("orders", "broker-a", 2)
    was, seen = start({A: 5, one: 3, read: 9}), Seen({A: Ends(0, 9)}, OURS, cut={one: Ends(0, 7), read: Ends(0, 9)})
    with pytest.raises(RuntimeError, match=r"broker-a/1 is a queue of its topic no more, and messages 3 to 6 were not"):
        known(was, seen)
    assert known(was, seen, is_strict=False) == {A: 5, one: 3, read: 9}
    assert list(standing.cut_text(offsets.positions(was), seen)) == [one]
    assert known(start({A: 5, one: 7, read: 9}), seen) == {A: 5, one: 7, read: 9}, "it was read to its end"


def test_a_queue_that_appears_later_is_read_from_0_and_what_is_gone_of_it_is_an_error_or_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole, late = {B: Ends(0, 9)}, {B: Ends(4, 9)}
    assert standing.beginnings(whole, Seen(whole), is_strict=True) == {B: 0}
    with pytest.raises(RuntimeError, match=r"broker-b/0 appeared after the stream began, and .* messages 0 to 3"):
        standing.beginnings(late, Seen(late), is_strict=True)
    with caplog.at_level(logging.WARNING):
        assert standing.beginnings(late, Seen(late), is_strict=False) == {B: 4}
    assert "messages 0 to 3 are gone, 4 in all" in caplog.text
    for is_strict in (True, False):
        assert standing.beginnings(late, Seen(late, behind=frozenset({ON_B})), is_strict) == {B: 0}, "the master says"
