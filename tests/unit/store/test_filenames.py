from __future__ import annotations

import pytest

from gantry.errors import StoreError
from gantry.store import filenames


def test_segments_and_queue_files_are_named_by_twenty_digits() -> None:
    assert filenames.by_offset(filenames.commit_log("/s"), 1 << 30) == "/s/commitlog/00000000001073741824"
    assert filenames.by_offset(filenames.queue("/s", "%RETRY%g", 3), 6_000_000) == (
        "/s/consumequeue/%RETRY%g/3/00000000000006000000"
    )


@pytest.mark.parametrize("offset", [0, 20, 1 << 30, (1 << 63) - 1])
def test_an_offset_comes_back_out_of_its_name(offset: int) -> None:
    assert filenames.parse_offset(filenames.by_offset("", offset)[1:]) == offset


@pytest.mark.parametrize("name", ["", "1", "0000000000000000000x", "lost+found", "00000000000000000000.tmp", "٠" * 20])
def test_other_names_are_no_offsets(name: str) -> None:
    assert filenames.parse_offset(name) is None


def test_index_files_are_named_by_local_time_and_sort_by_it() -> None:
    first, second = filenames.index_file("/s", 1_700_000_000_009), filenames.index_file("/s", 1_700_000_000_010)
    assert first < second
    name = first.rsplit("/", 1)[1]
    assert filenames.is_index_file(name) and len(name) == 17 and name.endswith("009")
    assert not filenames.is_index_file("index.new")


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "a\0b"])
def test_no_topic_leads_out_of_the_folder(topic: str) -> None:
    with pytest.raises(StoreError, match="cannot be the name of a folder"):
        filenames.topic_queues("/s", topic)


def test_queue_folders() -> None:
    assert filenames.parse_queue_id("12") == 12
    assert filenames.parse_queue_id("x") is None
    assert filenames.parse_queue_id("-1") is None
