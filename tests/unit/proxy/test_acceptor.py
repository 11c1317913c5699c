"""TLS and plain text on one port, before a server on a Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gantry.errors import ConfigError
from gantry.proxy import acceptor as acceptors
from gantry.proxy import tls
from gantry.proxy.acceptor import Acceptor, listening_socket, peer_of
from testkit.patience import HANG_S

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the name that the peer is bound to, then each piece that comes."""
    writer.write(writer.get_extra_info("peername") + b"\n")
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


@asynccontextmanager
async def accepting(
    folder: Path, context: ssl.SSLContext | None = None, serve: Serve = echo
) -> AsyncIterator[tuple[Acceptor, int]]:
    target = str(folder / "socket")
    server = await asyncio.start_unix_server(serve, target)
    listener = listening_socket("127.0.0.1", 0)
    port = listener.getsockname()[1]
    found = Acceptor(listener, target, context)
    failures: list[str] = []
    found.start(failures.append)
    try:
        async with asyncio.timeout(HANG_S):
            yield found, port
        assert not failures
    finally:
        await found.close()
        server.close()
        await server.wait_closed()


async def end(writer: asyncio.StreamWriter) -> None:
    """Close a connection, whatever the other side did."""
    writer.close()
    with contextlib.suppress(OSError, ssl.SSLError):
        await writer.wait_closed()


async def settles(is_so: Callable[[], bool]) -> bool:
    """Whether it is so in the end."""
    for _ in range(10_000):
        if is_so():
            return True
        await asyncio.sleep(0.001)
    return False


def context_of(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    served = tls.self_signed(folder)
    if served is None:
        pytest.skip("missing openssl; apt-get install openssl")
    client = ssl.create_default_context(cafile=str(folder / "proxy-cert.pem"))
    client.set_alpn_protocols(["h2"])
    return served, client


async def test_plain_text_and_tls_reach_the_server_on_one_port(tmp_path: Path) -> None:
    served, trusting = context_of(tmp_path)
    async with accepting(tmp_path, served) as (acceptor, port):
        for context in (None, trusting):
            name = None if context is None else "localhost"
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
            own = writer.get_extra_info("sockname")
            writer.write(b"x")
            peer = (await reader.readline()).decode().rstrip("\n")
            assert peer_of(f"unix-abstract:{peer[1:]}") == f"127.0.0.1:{own[1]}"
            if context is not None:
                assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
            data = bytes(range(256)) * 8192
            writer.write(data)
            assert await reader.readexactly(1 + len(data)) == b"x" + data
            await end(writer)
        assert await settles(lambda: not acceptor.open)


async def test_without_a_certificate_a_tls_handshake_ends_the_connection(tmp_path: Path) -> None:
    async with accepting(tmp_path) as (acceptor, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x16\x03\x01\x00\x05hello")
        with pytest.raises(ConnectionResetError):
            assert await reader.read() == b""
            raise ConnectionResetError
        assert not acceptor.open
        await end(writer)


async def test_a_side_that_does_not_read_stops_the_other(tmp_path: Path) -> None:
    """A client that reads nothing must not have the server's output kept for it in memory."""
    written = 0
    stuck = asyncio.Event()

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await reader.read(1)
        try:
            while written < 256 << 20:
                writer.write(bytes(1 << 16))
                written += 1 << 16
                async with asyncio.timeout(2):
                    await writer.drain()
        except TimeoutError:
            stuck.set()
        writer.transport.abort()

    async with accepting(tmp_path, serve=flood) as (_, port):
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
            client.connect(("127.0.0.1", port))
            client.send(b"x")
            await stuck.wait()
    assert written < 64 << 20, "kernel buffers and ours, not the whole flood"


@pytest.mark.parametrize("is_server_slow", [False, True])
async def test_a_side_that_was_stopped_goes_on_when_the_other_reads_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_server_slow: bool
) -> None:
    monkeypatch.setattr(acceptors, "_STALL_S", 1e6)
    is_full, reads_again, came = asyncio.Event(), asyncio.Event(), 0
    size = 32 << 20

    pause = acceptors._Side.pause_writing

    def paused(side: acceptors._Side) -> None:
        pause(side)
        is_full.set()

    async def fill(writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(size))
        await is_full.wait()
        reads_again.set()
        await writer.drain()

    async def take(reader: asyncio.StreamReader) -> None:
        nonlocal came
        await reads_again.wait()
        while came < size:
            came += len(await reader.read(1 << 20))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        await (take(reader) if is_server_slow else fill(writer))
        writer.close()

    monkeypatch.setattr(acceptors._Side, "pause_writing", paused)
    async with accepting(tmp_path, serve=serve) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x")
        await (fill(writer) if is_server_slow else take(reader))
        assert await settles(lambda: came == size)
        await end(writer)


async def test_connections_beyond_the_limit_are_closed_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptors, "CONNECTIONS_MAX", 1)
    async with accepting(tmp_path) as (acceptor, port):
        first, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x")
        await first.readline()
        second, other = await asyncio.open_connection("127.0.0.1", port)
        assert await second.read() == b""
        assert acceptor.refused == 1
        assert await first.readexactly(1) == b"x"
        await end(writer)
        await end(other)


async def test_a_silent_connection_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptors, "_FIRST_BYTE_S", 0.05)
    async with accepting(tmp_path) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        await end(writer)


async def test_a_server_that_is_gone_ends_the_clients_connection_and_the_proxy(tmp_path: Path) -> None:
    failures: list[str] = []
    listener = listening_socket("127.0.0.1", 0)
    acceptor = Acceptor(listener, str(tmp_path / "none"), None)
    port = listener.getsockname()[1]
    acceptor.start(failures.append)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"x")
    try:
        async with asyncio.timeout(HANG_S):
            assert await reader.read() == b""
    except ConnectionResetError:
        pass
    await end(writer)
    assert await settles(lambda: bool(failures))
    assert "gRPC's server" in failures[0]
    await acceptor.close()


async def test_a_connection_for_which_no_descriptor_is_left_does_not_count_as_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Scarce(socket.socket):
        def __init__(self, family: int = -1, *more: int, **named: int) -> None:
            if family == socket.AF_UNIX:
                raise OSError(errno.EMFILE, "too many open files")
            super().__init__(family, *more, **named)  # type: ignore[arg-type]

    async with accepting(tmp_path) as (acceptor, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        monkeypatch.setattr(socket, "socket", Scarce)
        writer.write(b"x")
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        assert await settles(lambda: not acceptor.open)
        await end(writer)


async def test_a_port_that_takes_no_connection_any_more_ends_the_proxy(tmp_path: Path) -> None:
    failures: list[str] = []
    listener = listening_socket("127.0.0.1", 0)
    acceptor = Acceptor(listener, str(tmp_path / "none"), None)
    acceptor.start(failures.append)
    await asyncio.sleep(0)
    listener.shutdown(socket.SHUT_RDWR)
    assert await settles(lambda: bool(failures))
    assert "gantry-proxy-acceptor ended" in failures[0]
    await acceptor.close()


def test_a_certificate_of_our_own_that_a_power_cut_emptied_is_made_again(tmp_path: Path) -> None:
    context_of(tmp_path)
    (tmp_path / "proxy-key.pem").write_bytes(b"")
    assert tls.self_signed(tmp_path) is not None
    assert (tmp_path / "proxy-key.pem").read_bytes()


def test_a_taken_port_and_a_missing_certificate_are_errors_of_the_configuration(tmp_path: Path) -> None:
    with listening_socket("127.0.0.1", 0) as taken, pytest.raises(ConfigError, match="cannot listen"):
        listening_socket("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(ConfigError, match="no certificate"):
        tls.context(tmp_path / "cert", tmp_path / "key")


def test_other_peers_keep_their_names() -> None:
    assert peer_of("ipv4:1.2.3.4:5") == "ipv4:1.2.3.4:5"
    assert peer_of("unix-abstract:gantry-proxy/1/2/%5B::1%5D:5") == "[::1]:5"


async def test_a_client_that_reads_nothing_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptors, "_STALL_S", 0.05)

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while True:
                writer.write(bytes(1 << 16))
                await writer.drain()

    async with accepting(tmp_path, serve=flood) as (acceptor, port):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"x")
            assert await settles(lambda: len(acceptor.open) == 1)
            assert await settles(lambda: not acceptor.open)


async def test_the_last_bytes_wait_for_a_client_only_so_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptors, "_LINGER_S", 0.05)
    monkeypatch.setattr(acceptors, "_BUFFER_BYTES_HIGH", 64 << 20)  # the end is read, and bytes wait to be written

    async def full(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(32 << 20))
        await writer.drain()
        writer.close()

    async with accepting(tmp_path, serve=full) as (acceptor, port):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"x")
            assert await settles(lambda: len(acceptor.open) == 1)
            assert await settles(lambda: not acceptor.open)


async def connected(port: int, host: str = "127.0.0.1") -> socket.socket:
    """A client at an address of its own, whose system takes little of what it does not read."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
    client.setblocking(False)
    client.bind((host, 0))
    await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port))
    return client


async def at_length(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer more than a client's system takes of it."""
    await reader.readexactly(1)
    with contextlib.suppress(OSError):
        writer.write(bytes(16 << 20))
        await writer.drain()
    writer.close()


async def test_a_host_with_half_of_all_connections_gets_no_more_and_others_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptors, "CONNECTIONS_MAX", 8)
    async with accepting(tmp_path) as (acceptor, port):
        many = [await asyncio.open_connection("127.0.0.1", port) for _ in range(6)]
        assert await settles(lambda: acceptor.refused == 2)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
        writer.write(b"x")
        assert await reader.readline()
        for _, one in (*many, (reader, writer)):
            await end(one)
        assert await settles(lambda: not acceptor.open and not acceptor._places.taken), "also those that said nothing"


async def test_clients_that_do_not_read_are_bounded_together_and_those_of_the_host_with_most_go(tmp_path: Path) -> None:
    async with accepting(tmp_path, serve=at_length) as (acceptor, port):
        acceptor.unread = acceptors.OutputBudget(6 * acceptors._BUFFER_BYTES_HIGH, asyncio.get_running_loop().call_soon)
        # Each keeps once to twice as much, so those that stay keep more than the other one together.
        deaf = [await connected(port) for _ in range(7)]
        for one in deaf:
            one.sendall(b"x")
        assert await settles(lambda: acceptor.unread.closed >= 1)
        other = await connected(port, "127.0.0.2")
        other.sendall(b"x")
        taken, loop = 0, asyncio.get_running_loop()
        while taken < 1 << 20:
            came = await loop.sock_recv(other, 1 << 20)
            assert came, "it was closed"
            taken += len(came)
        for one in (*deaf, other):
            one.close()
        assert await settles(lambda: not acceptor.open and not acceptor.unread.noted)


async def test_a_client_that_reads_slowly_is_not_let_go(tmp_path: Path) -> None:
    async with accepting(tmp_path, serve=at_length) as (acceptor, port):
        slow = await connected(port)
        slow.sendall(b"x")
        assert await settles(lambda: any(one.is_stalled for one in acceptor.open))
        (client,) = acceptor.open
        for _ in range(3):
            before = client.unsent_bytes()
            while client.unsent_bytes() >= before:
                assert await asyncio.get_running_loop().sock_recv(slow, 64 << 10)
            client.look()
            assert client.kept_bytes and client.is_stalled
        async with asyncio.timeout(HANG_S):
            while acceptor.open:  # its system may take a little more of what it does not read
                client.look()
                await asyncio.sleep(0)
        slow.close()


async def test_requests_that_never_come_whole_make_room_for_those_of_others(tmp_path: Path) -> None:
    """Each claims 32 MiB, and sends some of it: gRPC's server keeps what came."""
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    part = (50_000 + 5).to_bytes(3, "big") + b"\0\0" + (1).to_bytes(4, "big") + b"\0" + (32 << 20).to_bytes(4, "big")
    whole = (45).to_bytes(3, "big") + b"\0\1" + (3).to_bytes(4, "big") + b"\0" + (40).to_bytes(4, "big") + bytes(40)

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1 << 16):
            pass
        writer.close()

    async with accepting(tmp_path, serve=take) as (acceptor, port):
        acceptor.requests = acceptors.PartialBytes(120_000)
        loop = asyncio.get_running_loop()
        many = [await connected(port) for _ in range(2)]
        for nth, one in enumerate(many):
            await loop.sock_sendall(one, preface + whole + part + bytes(50_000))
            assert await settles(lambda nth=nth: acceptor.requests.total == (nth + 1) * (50_000 + 256))
        other = await connected(port, "127.0.0.2")
        await loop.sock_sendall(other, preface + part + bytes(50_000))
        hosts = ["127.0.0.1", "127.0.0.2"]
        assert await settles(lambda: sorted(one.peer.partition(":")[0] for one in acceptor.open) == hosts)
        assert await settles(lambda: acceptor.requests.total == 2 * (50_000 + 256))
        for one in (*many, other):
            one.close()
        assert await settles(lambda: not acceptor.open and not acceptor.requests.total)
