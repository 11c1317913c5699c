"""What a half says about its batch, and the index of what is open."""

from __future__ import annotations

import pytest

from gantry.transaction.batches import BatchKey, OpenParts, read_key


def test_the_property_names_sink_batch_part_and_home() -> None:
    assert read_key("orders-1.x:y/12/0-ab_c/broker-a") == BatchKey("orders-1.x:y", 12, "0-ab_c", "broker-a")


@pytest.mark.parametrize(
    "text",
    ["", "s/1/p", "s/x/p/h", "s/1/p/", "/1/p/h", "s/1/p q/h", "s/1/p/h/i", f"s/{1 << 63}/p/h", "s" * 129 + "/1/p/h"]
)
def test_what_does_not_read_so_is_none(text: str) -> None:
    assert read_key(text) is None


def test_the_index_has_what_is_open_by_part_and_nothing_else() -> None:
    index = OpenParts()
    one, two = BatchKey("s", 1, "a", "h"), BatchKey("s", 1, "b", "h")
    kept = index.add(one, 10, 500)
    assert index.add(BatchKey("s", 1, "a", "h"), 11, 400) is kept, "halves of a part share their key"
    index.add(two, 12, 600)
    index.add(two, 12, 600)
    assert index.halves == 3 and index.sinks() == ["s"]
    assert [(part.key.part, part.roots, part.since_ms) for part in index.parts("s")] == [
        ("a", (10, 11), 400),
        ("b", (12,), 600),
    ]
    for key, root in ((one, 10), (one, 11), (two, 12)):
        index.remove(key, root)
    assert index.halves == 0 and index.sinks() == [] and list(index.counts()) == []
