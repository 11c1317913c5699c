"""Compressed bodies of all kinds, and what happens without the packages for them."""

from __future__ import annotations

import random
import sys
import zlib

import pytest

from gantry.errors import ConfigError, RemoteProtocolError
from gantry.model.message import SYS_COMPRESSED, SYS_ZLIB
from gantry.wire import compression
from gantry.wire.compression import Compression, compress, decompress

BODY = b"the same again and " * 1000
OPTIONAL = [Compression.LZ4, Compression.ZSTD]


@pytest.mark.parametrize("kind", Compression)
def test_what_was_compressed_comes_back(kind: Compression) -> None:
    packed = compress(kind, BODY)
    assert len(packed) < len(BODY) / 10
    assert decompress(kind.value, packed, "it") == BODY
    assert decompress(kind.value, compress(kind, b""), "it") == b""


def test_a_body_without_the_bit_is_left_alone() -> None:
    assert decompress(SYS_ZLIB, BODY, "it") is BODY


def test_zlib_may_be_named_or_not() -> None:
    packed = zlib.compress(BODY)
    assert decompress(SYS_COMPRESSED, packed, "it") == decompress(SYS_COMPRESSED | SYS_ZLIB, packed, "it") == BODY


@pytest.mark.parametrize("kind", Compression)
def test_a_body_that_is_cut_off_or_is_none_is_the_sender_s_fault(kind: Compression) -> None:
    chance = random.Random(7).randbytes(300_000)  # several blocks, the first of which can be read
    for broken in (compress(kind, BODY)[:-6], compress(kind, chance)[:-9], b"nonsense", b""):
        with pytest.raises(RemoteProtocolError, match="message 7"):
            decompress(kind.value, broken, "message 7")


@pytest.mark.parametrize("kind", Compression)
def test_a_bomb_does_not_fill_the_memory(kind: Compression, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = compress(kind, BODY)
    monkeypatch.setattr(compression, "BODY_BYTES_MAX", len(BODY) - 1)
    with pytest.raises(RemoteProtocolError, match="exceeds"):
        decompress(kind.value, packed, "it")


def test_a_kind_that_nobody_knows_is_named() -> None:
    with pytest.raises(RemoteProtocolError, match="0x700"):
        decompress(SYS_COMPRESSED | 0x700, BODY, "it")


@pytest.mark.parametrize("kind", OPTIONAL)
def test_without_its_package_the_error_names_the_extra(kind: Compression, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = compress(kind, BODY)
    for name in ("lz4", "lz4.frame", "zstandard"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(RemoteProtocolError, match=r"gantrymq\[compression\]"):
        decompress(kind.value, packed, "it")
    with pytest.raises(ConfigError, match=r"gantrymq\[compression\]"):
        compress(kind, BODY)
    assert decompress(Compression.ZLIB.value, compress(Compression.ZLIB, BODY), "it") == BODY
