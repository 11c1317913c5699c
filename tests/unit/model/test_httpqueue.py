from __future__ import annotations

from gantry.model import httpqueue


def test_only_a_topic_with_an_id_is_a_queue_with_a_life() -> None:
    assert httpqueue.life_ms({"gantry.queue.life_s": "60"}) is None
    assert not httpqueue.is_queue({"gantry.queue.life_s": "60"})
    attributes = {"gantry.queue.id": "0123456789abcdef", "gantry.queue.life_s": "60"}
    assert httpqueue.is_queue(attributes)
    assert httpqueue.life_ms(attributes) == 60_000


def test_a_life_that_a_foreign_folder_spoiled_is_no_life() -> None:
    attributes = {"gantry.queue.id": "0123456789abcdef", "gantry.queue.life_s": "a day"}
    assert httpqueue.life_ms(attributes) is None
    assert httpqueue.life_ms({"gantry.queue.id": "0123456789abcdef"}) is None
