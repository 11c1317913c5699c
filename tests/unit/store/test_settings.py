from __future__ import annotations

import pytest

from gantry.store.settings import Flush, StoreSettings


def test_the_defaults_are_rocketmqs_files() -> None:
    settings = StoreSettings("/s")
    assert settings.segment_bytes == 1_073_741_824
    assert settings.queue_file_bytes == 6_000_000
    assert settings.index_file_bytes == 420_000_040
    assert settings.flush is Flush.ASYNC
    assert len(settings.delay_levels_ms) == 18 and settings.delay_levels_ms[17] == 7_200_000


def test_the_flush_policy_may_be_given_by_its_name() -> None:
    assert StoreSettings("/s", flush="SYNC_FLUSH").flush is Flush.SYNC  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="SOMETIMES"):
        StoreSettings("/s", flush="SOMETIMES")  # type: ignore[arg-type]


def test_segments_are_whole_pages() -> None:
    with pytest.raises(AssertionError):
        StoreSettings("/s", segment_bytes=5000)
