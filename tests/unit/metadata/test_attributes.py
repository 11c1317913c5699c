from __future__ import annotations

import pytest

from gantry.errors import Refusal
from gantry.metadata.attributes import altered
from gantry.wire.codes import ResponseCode


def test_added_attributes_are_kept_under_their_bare_keys() -> None:
    assert altered(None, "+message.type=FIFO,+reserve.time=-1") == {"message.type": "FIFO", "reserve.time": "-1"}


def test_an_existing_topic_changes_and_loses_attributes() -> None:
    current = {"message.type": "FIFO", "reserve.time": "10"}
    assert altered(current, "+message.type=NORMAL,-reserve.time") == {"message.type": "NORMAL"}
    assert current == {"message.type": "FIFO", "reserve.time": "10"}


def test_taking_away_what_is_not_there_changes_nothing() -> None:
    assert altered({"message.type": "FIFO"}, "-reserve.time") == {"message.type": "FIFO"}


@pytest.mark.parametrize("modification", ["", " ", ",", " , "])
def test_an_empty_modification_changes_nothing(modification: str) -> None:
    assert altered({"message.type": "FIFO"}, modification) == {"message.type": "FIFO"}


@pytest.mark.parametrize(
    "modification",
    [
        "message.type=FIFO",
        "+message.type",
        "-message.type=FIFO",
        "+=FIFO",
        "+",
        "+color=red",
        "-color",
        "+message.type=fifo",
        "+message.type=",
        "+reserve.time=-2",
        "+reserve.time=ten",
        "+reserve.time=-",
        "+reserve.time=9223372036854775808",
        "+reserve.time=" + "9" * 5000,
        "+reserve.time=\u0663",
        "+queue.type=BatchCQ,+queue.type=SimpleCQ",
        "+message.type=FIFO,-message.type",
    ],
)
@pytest.mark.parametrize("current", [None, {}])
def test_what_is_ill_formed_unknown_or_illegal_is_refused(modification: str, current: dict[str, str] | None) -> None:
    refusal = altered(current, modification)
    assert isinstance(refusal, Refusal)
    assert refusal.code == ResponseCode.INVALID_PARAMETER
    assert len(refusal.remark) < 200


@pytest.mark.parametrize("step", ["+queue.type=SimpleCQ", "-queue.type", "+cleanup.policy=DELETE"])
def test_how_the_files_look_is_settled_when_the_topic_is_made(step: str) -> None:
    assert not isinstance(altered(None, "+queue.type=SimpleCQ,+cleanup.policy=DELETE"), Refusal)
    assert isinstance(altered({"queue.type": "SimpleCQ"}, step), Refusal)


@pytest.mark.parametrize(
    ("step", "advice"),
    [
        ("+cleanup.policy=COMPACTION", "leave it out"),
        ("+queue.type=BatchCQ", "leave it out"),
        ("+message.type=PRIORITY", "use a topic for each priority"),
        ("+reserve.time=72", "set store.reserved_hours"),
        ("+reserve.time=0", "set store.reserved_hours"),
    ],
)
def test_what_would_have_no_effect_is_refused_with_advice(step: str, advice: str) -> None:
    refusal = altered(None, step)
    assert isinstance(refusal, Refusal) and refusal.code == ResponseCode.INVALID_PARAMETER
    assert step[1:] in refusal.remark and advice in refusal.remark


def test_what_a_folder_brought_along_stays_and_can_be_taken_away() -> None:
    found = {"cleanup.policy": "COMPACTION", "reserve.time": "72"}
    assert altered(found, "+message.type=FIFO") == {**found, "message.type": "FIFO"}
    assert altered(found, "-reserve.time") == {"cleanup.policy": "COMPACTION"}


def test_nothing_can_be_taken_from_a_topic_that_is_being_made() -> None:
    assert isinstance(altered(None, "-reserve.time"), Refusal)


def test_one_bad_step_refuses_all() -> None:
    current = {"reserve.time": "10"}
    assert isinstance(altered(current, "+reserve.time=20,+color=red"), Refusal)
    assert current == {"reserve.time": "10"}


def test_a_topic_becomes_a_queue_and_keeps_the_attributes_of_rocketmq() -> None:
    made = altered({"message.type": "NORMAL"}, "+gantry.queue.id=0123456789abcdef,+gantry.queue.life_s=60")
    assert made == {
        "message.type": "NORMAL",
        "gantry.queue.id": "0123456789abcdef",
        "gantry.queue.life_s": "60",
    }


def test_a_queue_keeps_its_id_as_long_as_it_exists() -> None:
    current = {"gantry.queue.id": "0123456789abcdef", "gantry.queue.wait_s": "3"}
    again = altered(current, "+gantry.queue.id=0123456789abcdef,+gantry.queue.wait_s=4,-gantry.queue.life_s")
    assert again == {"gantry.queue.id": "0123456789abcdef", "gantry.queue.wait_s": "4"}
    for modification in ("+gantry.queue.id=fedcba9876543210", "-gantry.queue.id"):
        refusal = altered(current, modification)
        assert isinstance(refusal, Refusal)
        assert "cannot be changed" in refusal.remark


@pytest.mark.parametrize(
    "step",
    [
        "+gantry.queue.id=0123456789ABCDEF",
        "+gantry.queue.id=0123",
        "+gantry.queue.life_s=0",
        "+gantry.queue.life_s=1296001",
        "+gantry.queue.life_s=-1",
        "+gantry.queue.life_s=\u0663",
        "+gantry.queue.delay_s=604801",
        "+gantry.queue.logging=yes",
        "+gantry.queue.size_max=ten",
        "+gantry.queue.color=red",
        "+gantry.queue." + "x" * 500 + "=1",
    ],
)
def test_an_attribute_of_a_queue_has_its_form(step: str) -> None:
    refusal = altered({}, step)
    assert isinstance(refusal, Refusal)
    assert refusal.code == ResponseCode.INVALID_PARAMETER
    assert len(refusal.remark) < 500


def test_an_http_topic_has_its_settings_and_a_text_for_each_subscription() -> None:
    made = altered(None, "+gantry.topic.id=00ff00ff00ff00ff,+gantry.topic.size_max=65536,+gantry.topic.sub.A-1=abc_-")
    assert isinstance(made, dict) and made["gantry.topic.sub.A-1"] == "abc_-"
    assert altered(made, "-gantry.topic.sub.A-1") == {k: v for k, v in made.items() if k != "gantry.topic.sub.A-1"}


@pytest.mark.parametrize(
    "step",
    [
        "+gantry.topic.id=00FF",
        "+gantry.topic.size_max=ten",
        "+gantry.topic.logging=yes",
        "+gantry.topic.else=1",
        "+gantry.topic.sub.=a",
        "+gantry.topic.sub.a/b=a",
        "+gantry.topic.sub.a=a b",
        "+gantry.topic.sub.a=" + "a" * 2049,
    ],
)
def test_attributes_of_an_http_topic_are_checked(step: str) -> None:
    assert isinstance(altered({}, step), Refusal)


def test_a_topic_is_a_queue_or_a_topic_for_the_http_server() -> None:
    queue = {"gantry.queue.id": "0" * 16}
    assert isinstance(altered(queue, "+gantry.topic.id=" + "0" * 16), Refusal)
    assert isinstance(altered({"gantry.topic.id": "0" * 16}, "+gantry.queue.id=" + "0" * 16), Refusal)


def test_the_number_of_subscriptions_of_a_topic_is_bounded() -> None:
    current = {f"gantry.topic.sub.s{number}": "a" for number in range(200)}
    assert isinstance(altered(current, "+gantry.topic.sub.one-more=a"), Refusal)
    assert isinstance(altered(current, "+gantry.topic.sub.s0=b"), dict)
