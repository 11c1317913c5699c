"""The files of keys that sign handles."""

from __future__ import annotations

from pathlib import Path

import pytest

from gantry.errors import ConfigError
from gantry.gateway import keys

OLD, NEW = b"0123456789abcdef", b"fedcba9876543210"


def test_a_file_of_keys_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "config" / "keys"
    first = keys.read_or_make(path)
    assert len(first) == 1 and len(first[0]) == 64
    assert path.stat().st_mode & 0o777 == 0o600
    assert keys.read_or_make(path) == first == keys.read(path)
    assert [one.name for one in path.parent.iterdir()] == ["keys"]


def test_the_first_line_signs_and_comments_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"# new\n" + NEW + b"\n\n  " + OLD + b"\n")
    assert keys.read(path) == [NEW, OLD]


@pytest.mark.parametrize("text", [b"", b"# nothing\n", b"short\n", b"0123456789abcdef\n" * 17])
def test_a_file_without_usable_keys_is_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "keys"
    path.write_bytes(text)
    with pytest.raises(ConfigError, match="key"):
        keys.read(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        keys.read(tmp_path / "none")
