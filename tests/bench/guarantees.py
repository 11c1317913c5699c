"""What the guarantee costs a service, per message, beside its bare business transaction in the same database.

    producer   bare: an INSERT and its COMMIT; with the stub in it; by the outbox, which sends to a broker and stores
               places in the background meanwhile
    consumer   bare: the same; guarded, a new message; guarded, a duplicate

One connection, one transaction a message.  The kinds take turns, and each row is the median round by its ratio to the
bare transaction beside it.  `trips` are statements more than those of the bare transaction, counted at the driver;
BEGIN and COMMIT are the same in both.  SQLite has no round trips, its statements are counted.  Each database is
measured as it comes, where a COMMIT waits for the disk, and without waiting, where the ratio is that of the work.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psycopg
from servers import gantry

from gantry.guarantee import migration
from gantry.guarantee.blocks import producer_block
from gantry.guarantee.dialects import POSTGRESQL, SQLITE, Dialect
from gantry.guarantee.idempotent import Idempotent
from gantry.guarantee.outbox import Outbox
from gantry.guarantee.producing import OutgoingStub, declare, write_stub
from gantry.guarantee.running import run
from gantry.guarantee.statements import statements
from gantry.guarantee.units import unit
from gantry.model.message import Message

if TYPE_CHECKING:
    from scenarios import Bench, Row

_TESTS = Path(__file__).resolve().parent.parent
_COUNT = 200  # transactions of one kind in a row
_BODY = b"x" * 1024
_BUSINESS = "INSERT INTO business (name) VALUES ('an order of a usual length')"
_FIRST_QUEUE = SimpleNamespace(topic="Orders", broker_name="b", queue_id=0)
_TARGETS = {  # of round trips; SQLite has none
    "PostgreSQL, producer, with the stub": "<= 1", "PostgreSQL, producer, by the outbox": "<= 1",
    "PostgreSQL, consumer, new message": "<= 3", "PostgreSQL, consumer, duplicate": "<= 3",
}  # fmt: skip


class _Counts:
    trips = 0


class _SqliteCursor(sqlite3.Cursor):
    def execute(self, *arguments: Any) -> Any:
        _Counts.trips += 1
        return super().execute(*arguments)


class _Sqlite(sqlite3.Connection):
    def cursor(self, factory: Any = _SqliteCursor) -> Any:
        return super().cursor(factory)


class _PostgresCursor(psycopg.Cursor[Any]):
    def execute(self, *arguments: Any, **more: Any) -> Any:
        _Counts.trips += 1
        return super().execute(*arguments, **more)


@dataclass
class _Service:
    """A service on one database; each kind handles `_COUNT` messages on the same connection."""

    dialect: Dialect
    connection: Any
    outbox: Outbox
    made: int = 0
    handled: list[str] = field(default_factory=list)

    def bare(self) -> None:
        """The business alone."""
        for _ in range(_COUNT):
            with unit(self.connection):
                self._business()

    def stubs(self) -> None:
        """Business and stub, and nobody who sends."""
        say, now_ms = statements(self.dialect, "named"), time.time_ns() // 1_000_000
        for _ in range(_COUNT):
            self.made += 1
            stub = OutgoingStub(f"7F0000010000ABCD{self.made:016X}", Message("Orders", _BODY))
            writing = partial(write_stub, say, stub, now_ms, now_ms + 60_000, "bench")
            with producer_block(self.dialect, self.connection, writing):
                self._business()

    def outboxed(self) -> None:
        """The whole outbox."""
        for _ in range(_COUNT):
            with self.outbox.transaction(self.connection) as tx:
                self._business()
                tx.send(Message("Orders", _BODY))

    def consumed(self) -> None:
        """New messages, of the stubs made last."""
        guard = Idempotent("packing", self.dialect.name)
        self.handled = [f"7F0000010000ABCD{number:016X}" for number in range(self.made - _COUNT + 1, self.made + 1)]
        self._handle(guard)

    def duplicates(self) -> None:
        """The same messages once more."""
        self._handle(Idempotent("packing", self.dialect.name))

    def settle(self) -> None:
        """Wait until the outbox has sent and placed what it was given."""
        counts = self.outbox.sender.counts  # type: ignore[union-attr]
        deadline = time.monotonic() + 60
        while counts.sent + counts.left_to_resend < self._given() or counts.placed + counts.not_placed < counts.sent:
            if time.monotonic() > deadline:
                raise SystemExit(f"the outbox has sent and placed {counts} of {self._given()}")
            time.sleep(0.01)

    def _given(self) -> int:
        with closing(self.connection.cursor()) as cursor:
            cursor.execute("SELECT COUNT(*) FROM guarantee_stub WHERE changed_by = 'outbox'")
            ((count,),) = cursor.fetchall()
        self.connection.rollback()
        return int(count)

    def _handle(self, guard: Idempotent) -> None:
        for offset, name in enumerate(self.handled):
            message = SimpleNamespace(message_id=name, queue=_FIRST_QUEUE, queue_offset=offset)
            with guard.effect(self.connection, message) as effect:
                if effect:
                    self._business()

    def _business(self) -> None:
        with closing(self.connection.cursor()) as cursor:
            cursor.execute(_BUSINESS)


_Kinds = Sequence[tuple[str, Callable[[_Service], None]]]
_KINDS: _Kinds = (
    ("producer, with the stub", _Service.stubs), ("producer, by the outbox", _Service.outboxed),
    ("consumer, new message", _Service.consumed), ("consumer, duplicate", _Service.duplicates),
)  # fmt: skip


def guarantee(bench: Bench) -> list[Row]:
    """Rows for SQLite and PostgreSQL, each with and without a COMMIT that waits for the disk."""
    if str(_TESTS) not in sys.path:
        sys.path.insert(0, str(_TESTS))
    rows: list[Row] = []
    with gantry(bench.folder / "guarantee") as server:
        nameserver = f"127.0.0.1:{server.nameserver_port}"
        for name, opened in (("SQLite", _sqlite), ("PostgreSQL", _postgres)):
            for is_synced in (True, False):
                label = f"{name}, COMMIT {'waits for the disk' if is_synced else 'does not wait'}"
                with opened(bench.folder, nameserver, is_synced) as service:
                    rows += _measured(label, service, max(3, bench.rounds))
    return rows


def _measured(label: str, service: _Service, rounds: int) -> list[Row]:
    found: dict[str, list[tuple[float, float, float, int]]] = {name: [] for name, _ in _KINDS}
    for number in range(rounds + 1):
        for name, work in _KINDS:
            bare_us, bare_trips = _timed(service, _Service.bare)
            took_us, trips = _timed(service, work)
            service.settle()
            if number:  # the first round fills caches
                found[name].append((took_us / bare_us, bare_us, took_us, trips - bare_trips))
    rows: list[Row] = []
    for name, measured in found.items():
        ratios = sorted(ratio for ratio, *_ in measured)
        ratio, bare_us, took_us, more = sorted(measured)[len(measured) // 2]
        rows.append(
            {
                "figure": f"guarantee, {label}: {name}",
                "us": round(took_us),
                "bare_us": round(bare_us),
                "ratio": f"{ratio:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})",
                "trips": round(more / _COUNT, 2),
                "target": _TARGETS.get(f"{label.partition(',')[0]}, {name}", ""),
            }
        )
    return rows


def _timed(service: _Service, work: Callable[[_Service], None]) -> tuple[float, int]:
    """Microseconds a message, and the statements of all."""
    _Counts.trips, begun = 0, time.perf_counter()
    work(service)
    return 1e6 * (time.perf_counter() - begun) / _COUNT, _Counts.trips


@contextmanager
def _sqlite(folder: Path, nameserver: str, is_synced: bool) -> Iterator[_Service]:
    def connect() -> sqlite3.Connection:
        found = sqlite3.connect(folder / f"guarantee-{is_synced}.db", timeout=30.0, factory=_Sqlite)
        found.execute(f"PRAGMA synchronous = {'FULL' if is_synced else 'OFF'}")
        return found

    with closing(connect()) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        with _service(SQLITE, connection, connect, nameserver) as service:
            yield service


@contextmanager
def _postgres(folder: Path, nameserver: str, is_synced: bool) -> Iterator[_Service]:
    from testkit.postgres import running_postgres

    with ExitStack() as stack:
        address = stack.enter_context(running_postgres(fsync="on" if is_synced else "off")).database()
        connect = partial(psycopg.connect, address, cursor_factory=_PostgresCursor)
        connection = stack.enter_context(closing(connect()))
        yield stack.enter_context(_service(POSTGRESQL, connection, partial(psycopg.connect, address), nameserver))


@contextmanager
def _service(dialect: Dialect, connection: Any, connect: Callable[[], Any], nameserver: str) -> Iterator[_Service]:
    migration.install(connection, dialect, 0)
    run(declare(statements(dialect, "named"), "Orders", "packing", "retry", 0, "bench"), connection)
    with closing(connection.cursor()) as cursor:
        cursor.execute("CREATE TABLE business (name TEXT)")
    connection.commit()
    with Outbox(dialect.name, connect, nameserver=nameserver, group="bench") as outbox:
        yield _Service(dialect, connection, outbox)
