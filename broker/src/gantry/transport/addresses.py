"""Addresses as text and as RocketMQ's packed hosts.

A packed host is the ip (4 or 16 bytes) followed by the port as i32, big-endian: 8 or 20 bytes, as it
stands in records and message ids (MessageDecoder).  An IPv4 client of a dual-stack socket arrives as
`::ffff:1.2.3.4` and is packed as what it is.
"""

from __future__ import annotations

import socket

from gantry.errors import ConfigError

NO_HOST = bytes(8)  # the host of a record when the address is not known

_MAPPED_V4 = bytes(10) + b"\xff\xff"


def pack_host(host: str, port: int) -> bytes:
    """The 8 or 20 bytes of a numeric address; zeros for what is no address (a Unix socket)."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        packed = socket.inet_pton(family, host.partition("%")[0])
    except OSError:
        return NO_HOST
    return packed.removeprefix(_MAPPED_V4) + port.to_bytes(4, "big")


def host_text(packed: bytes) -> str:
    """`ip:port` of a packed host; the ip of version 6 stands in brackets."""
    ip, port = packed[:-4], int.from_bytes(packed[-4:], "big")
    if len(ip) == 4:
        return f"{socket.inet_ntop(socket.AF_INET, ip)}:{port}"
    return f"[{socket.inet_ntop(socket.AF_INET6, ip)}]:{port}"


def host_of(peer: str) -> str:
    """The ip of `ip:port`, for which shares are counted; of a peer without a port, the whole text."""
    return peer.rpartition(":")[0] or peer


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of `host:port` or `[v6]:port`, without an `http://` in front; else ConfigError."""
    host, colon, port = address.strip().removeprefix("http://").rstrip("/").rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"address {address!r}: expected host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def split_addresses(addresses: str) -> list[str]:
    """Split RocketMQ's list form, `a:1;b:2`, into its addresses; a comma separates them as well."""
    parts = [part.strip() for part in addresses.replace(",", ";").split(";")]
    return [part for part in parts if part]
