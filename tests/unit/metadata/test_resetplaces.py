"""Places in the log at which groups were reset."""

from __future__ import annotations

from gantry.metadata.resetplaces import ResetPlaces


def test_places_below_the_start_of_the_log_are_forgotten_in_slices() -> None:
    places = ResetPlaces({"T@g": {queue_id: queue_id for queue_id in range(5000)}, "@h": {0: 10}})
    steps = list(places.forget_below(4990))
    assert len(steps) == 3 and all(steps)
    assert places.value("T@g") == {str(queue_id): queue_id for queue_id in range(4990, 5000)}
    assert places.keys() == ["T@g"], "a key without places goes"
    assert not any(places.forget_below(4990))


def test_a_queue_that_is_reset_between_two_slices_keeps_its_new_place() -> None:
    places = ResetPlaces({"T@g": dict.fromkeys(range(5000), 1), "U@g": {0: 1}})
    steps = places.forget_below(100)
    next(steps)
    places.put("T@g", 4000, 200)
    places.follow("U@g", {0: 300})
    list(steps)
    assert (places.value("T@g"), places.value("U@g")) == ({"4000": 200}, {"0": 300})
