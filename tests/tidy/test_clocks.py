"""Which modules outside the broker look at a wall clock, and what for: no rule of theirs may go by it unnoticed.

A process whose clock is wrong has to do no harm with any of these.  See "Which clock" in broker/docs/transactions.md.
"""

from __future__ import annotations

import ast

from testkit.sources import ROOT

_PACKAGES = ("client", "guarantee", "mns", "gateway", "proxy", "queues")
_BIRTH = "birth and id of messages, which no rule uses"
_VERSION = "version of a subscription: the later one of a group counts"
_ROWS = "rows of the tables, bounded by the database's clock"

WHAT_FOR = {
    "client/blocking.py": _BIRTH,
    "client/blockingpop.py": _VERSION,
    "client/consumer.py": f"{_VERSION}; its start, shown",
    "client/consuming/orderlyqueue.py": "begin of a group at a time",
    "client/consuming/queueshare.py": "begin of a group at a time",
    "client/consuming/popsource.py": "begin of a group at a time",
    "client/orderly.py": f"{_VERSION}; its start, shown; begin of a group at a time",
    "client/producer.py": _BIRTH,
    "client/pullconsumer.py": f"{_VERSION}; begin of a group at a time",
    "client/simpleconsumer.py": _VERSION,
    "client/transaction.py": _BIRTH,
    "guarantee/effects.py": "claims of outside effects, with `skew_s`",
    "guarantee/idempotent.py": "rows of arrivals: when they came",
    "guarantee/mail.py": "date of a mail",
    "guarantee/metrics.py": "ages in metrics",
    "guarantee/outbox.py": _ROWS,
    "guarantee/people.py": "claims of digests, for 15 minutes",
    "guarantee/resending.py": _ROWS,
    "guarantee/resendservice.py": "comparison with the database's clock",
    "guarantee/transactional.py": _ROWS,
    "guarantee/webhook.py": "date of a signature",
    "mns/httpxcalls.py": "date of a signature; the server's clock is told with each answer",
    "proxy/receiving.py": "time of delivery, shown",
    "proxy/sending.py": f"{_BIRTH}; bound of a moment that the producer named",
    "queues/publishing.py": _BIRTH,
    "queues/queuecalls.py": "next time of visibility, shown",
    "queues/sending.py": "birth of messages: their life ends by it",
    "queues/server.py": "dates of signatures, bounded by 15 minutes",
    "queues/table.py": "dates of queues, shown",
    "queues/topictable.py": "dates of topics, shown",
}


def test_every_look_at_a_wall_clock_outside_the_broker_is_listed() -> None:
    source = ROOT / "broker/src/gantry"
    found = {
        str(path.relative_to(source))
        for package in _PACKAGES
        for path in sorted((source / package).rglob("*.py"))
        if any(_looks(node) for node in ast.walk(ast.parse(path.read_text())))
    }
    assert found - WHAT_FOR.keys() == set(), "say what for, and that a wrong clock does no harm there"
    assert WHAT_FOR.keys() - found == set(), "they do not look at it any more"


# What the simulation runs asks only the clock that it was given: a busy machine changes no story.
_GIVEN = {"clock.py", "broker/machine.py", "transport/server.py"}  # where it is given, or is not: a server of a test
_NOT_SIMULATED = (*_PACKAGES, "cli", "local", "spark")


def test_what_the_simulation_runs_asks_no_clock_of_the_machine() -> None:
    source = ROOT / "broker/src/gantry"
    found = {
        str(path.relative_to(source))
        for path in sorted(source.rglob("*.py"))
        if path.relative_to(source).parts[0] not in _NOT_SIMULATED
        and any(_is_of_time(node) for node in ast.walk(ast.parse(path.read_text())))
    }
    assert found <= _GIVEN, "take the clock as an argument"


def _is_of_time(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "time"
        and node.attr in ("monotonic", "time", "perf_counter", "thread_time", "time_ns", "monotonic_ns")
    )


def _looks(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("now_ms", "_now_ms", "wall_ms")
    )
