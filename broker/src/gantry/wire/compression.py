"""Compressed bodies: three kinds, told by bits of a message's sysFlag.  RocketMQ: `CompressorFactory`.

zlib is in the standard library.  LZ4 (frames, as Java's `LZ4FrameOutputStream` writes them) and Zstandard need packages
that are optional.  They are imported when the first such body comes; if they are missing, the error names the extra to
install.  RocketMQ's clients before 5.0 set no kind and mean zlib; they read nothing else.

Brokers pass bodies on as they are.
"""

from __future__ import annotations

import zlib
from enum import Enum
from importlib import import_module
from types import ModuleType

from gantry.errors import ConfigError, RemoteProtocolError
from gantry.model.message import SYS_COMPRESSED, SYS_COMPRESSION_MASK, SYS_LZ4, SYS_ZLIB, SYS_ZSTD

BODY_BYTES_MAX = 64 * 1024 * 1024
"""What a body may grow to when it is decompressed, so that a bomb does not fill the memory; brokers take 4 MiB."""

_LEVEL = 5  # RocketMQ's msgCompressLevel
_ZSTD_PIECE_BYTES = 1024  # a block of four bytes may stand for 128 KiB


class Compression(Enum):
    """How a body is compressed; the value is what sysFlag says."""

    ZLIB = SYS_COMPRESSED  # no kind beside the bit: read by clients of every age
    LZ4 = SYS_COMPRESSED | SYS_LZ4
    ZSTD = SYS_COMPRESSED | SYS_ZSTD


def compress(kind: Compression, body: bytes) -> bytes:
    """The body, compressed; ConfigError when the kind's package is not installed."""
    if kind is Compression.ZLIB:
        return zlib.compress(body, _LEVEL)
    module = _package(kind)
    if module is None:
        raise ConfigError(_missing(kind))
    packed: bytes = module.compress(body) if kind is Compression.LZ4 else module.ZstdCompressor(_LEVEL).compress(body)
    return packed


def decompress(sys_flag: int, body: bytes, what: str) -> bytes:
    """The body as it was before its sender compressed it; RemoteProtocolError naming `what` when that cannot be."""
    if not sys_flag & SYS_COMPRESSED:
        return body
    kind = sys_flag & SYS_COMPRESSION_MASK
    if kind in (0, SYS_ZLIB):
        return _inflated(body, what)
    if kind not in (SYS_LZ4, SYS_ZSTD):
        raise RemoteProtocolError(f"{what} is compressed with kind {kind:#x}; expected zlib, LZ4 or Zstandard")
    named = Compression(SYS_COMPRESSED | kind)
    module = _package(named)
    if module is None:
        raise RemoteProtocolError(f"{what} is compressed; {_missing(named)}")
    return _unlz4(module, body, what) if named is Compression.LZ4 else _unzstd(module, body, what)


def _inflated(body: bytes, what: str) -> bytes:
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(body, BODY_BYTES_MAX)
    except zlib.error as error:
        raise RemoteProtocolError(f"{what} has a body that does not decompress") from error
    if not inflater.eof:
        raise _cut_off(what)
    return found


def _unlz4(module: ModuleType, body: bytes, what: str) -> bytes:
    inflater = module.LZ4FrameDecompressor()
    try:
        found: bytes = inflater.decompress(body, BODY_BYTES_MAX)
    except RuntimeError as error:
        raise RemoteProtocolError(f"{what} has a body that does not decompress") from error
    if not inflater.eof:
        raise _cut_off(what)
    return found


def _unzstd(module: ModuleType, body: bytes, what: str) -> bytes:
    # The package's bounded reader does not tell a body that is cut off from a whole one, and what tells has no bound:
    # so it gets the body in pieces, none of which grows to more than half of the bound.
    inflater = module.ZstdDecompressor().decompressobj()
    found = bytearray()
    at = 0
    try:
        while at < len(body) and not inflater.eof and len(found) <= BODY_BYTES_MAX:
            found += inflater.decompress(body[at : at + _ZSTD_PIECE_BYTES])
            at += _ZSTD_PIECE_BYTES
    except module.ZstdError as error:
        raise RemoteProtocolError(f"{what} has a body that does not decompress") from error
    if not inflater.eof or len(found) > BODY_BYTES_MAX:
        raise _cut_off(what)
    return bytes(found)


def _cut_off(what: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"{what} has a compressed body that is cut off or exceeds {BODY_BYTES_MAX} bytes")


def _package(kind: Compression) -> ModuleType | None:
    try:
        return import_module("lz4.frame" if kind is Compression.LZ4 else "zstandard")
    except ImportError:
        return None


def _missing(kind: Compression) -> str:
    return f"{kind.name} needs a package that is not installed: pip install 'gantrymq[compression]'"
