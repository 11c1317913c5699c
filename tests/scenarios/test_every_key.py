"""Every configuration key at its edges: either refused with key, place and bounds, or a broker works with it.

A broker that works starts, takes a message, gives it out again, and stops.  Per commit all numbers stand at one edge
together, in one broker each; alone, each value has its own broker in the slow test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gantry.broker.settings import loading
from gantry.broker.settings.config import KEYS
from gantry.errors import ConfigError
from gantry.model.keys import DeclaredKey
from testkit.brokerplay import bodies, peer, pull, running_broker, send

NUMBERS = {name: entry for name, entry in KEYS.items() if entry.kind in (int, float)}
# What only a machine with other addresses, files or members can have; each has tests of its own.
_OF_THE_MACHINE = ("network.", "replication.", "standalone.", "store.root", "id", "role")
_UNITS = {"s": "seconds", "ms": "milliseconds", "bytes": "bytes", "hours": "hours"}
# A broker that may not write or read, or stops writing at such a share of any disk, serves no message by intention.
_REFUSES = {("permission", 2), ("permission", 4), ("store.disk_used_refuse", 0.01), ("messages.body_bytes_max", 1)}


def edges(entry: DeclaredKey) -> Iterator[object]:
    """What is tried for a key: the edges of its bounds and one step beyond, and what people mistype."""
    key = entry.key
    yield from (
        0,
        -1,
        "0",
        "-1",
        "nan",
        float("nan"),
        float("inf"),
        "",
        "\0",
        None,
        True,
        [],
        [1],
        {"a": 1},
        "x" * 5000,
    )
    if entry.kind in (int, float) and not key.among:
        step = 1 if entry.kind is int else 0.001
        yield from (key.low, key.high, key.low - step, key.high + step, str(key.low), str(key.high))
    yield from key.among or ()
    yield from (value for value, _ in key.special)


def is_taken(name: str, value: object) -> bool:
    """Whether the declaration means to allow the value; written apart from the reading of values."""
    entry = KEYS[name]
    key = entry.key
    if entry.kind in (int, float):
        is_text = isinstance(value, str) and value.lstrip("-").replace(".", "").isdecimal()
        given = float(value) if is_text else value  # type: ignore[arg-type]
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        return is_number and (given in dict(key.special) or (not key.among and key.low <= given <= key.high))  # type: ignore[operator]
    if entry.kind is bool:
        return value in (0, True, "0")
    return False


@pytest.mark.parametrize("name", KEYS)
def test_every_key_has_bounds_and_a_description(name: str) -> None:
    entry = KEYS[name]
    key = entry.key
    assert len(key.text) > 15 and key.text[0] != " " and key.text.endswith("."), "a sentence that says what it does"
    if entry.kind in (int, float) and not key.among:
        assert key.low < key.high and (key.unit or name.endswith(("port", "id", "ordinal"))), "bounds and a unit"
        assert _UNITS.get(re.split("[._]", name)[-1], key.unit) == key.unit, "the name ends in the unit"
        assert is_taken(name, entry.default), "the default is within the bounds"
    elif entry.kind in (str, tuple[str, ...]):
        assert key.high, "a text or a list has a greatest length"


@pytest.mark.parametrize("name", KEYS)
def test_what_is_out_of_bounds_is_refused_with_key_place_and_bounds(name: str) -> None:
    for value in edges(KEYS[name]):
        if value is None:
            continue  # a flag that is not given
        try:
            loading.load(flags={name: value}, spoken={name: f"--set {name}"})
        except ConfigError as error:
            # Rules between keys may refuse what the key alone allows; they begin with the key.
            begins = f"--set {name}: {name} " if not is_taken(name, value) else name
            assert begins in str(error) and ("expected" in str(error) or is_taken(name, value)), str(error)
        else:
            is_text = KEYS[name].kind in (str, tuple[str, ...])
            assert is_text or is_taken(name, value), f"{name}={value!r} was taken"


async def _works(folder: Path, **changes: object) -> None:
    async with running_broker(folder, **changes) as broker, peer(broker) as client:
        sent = await client.call(send("tea", b"x", pairs={"KEYS": "k"}))
        assert sent.code == 0, sent.remark
        reply = await client.call(pull("tea", suspendTimeoutMillis="0"))
        assert reply.code == 0 and bodies(reply) == [b"x"], reply.remark


def _tried() -> Iterator[tuple[str, float]]:
    """Every number that a broker has to work with."""
    for name, entry in NUMBERS.items():
        if not name.startswith(_OF_THE_MACHINE) or name in _LIMITS_OF_CONNECTIONS + _OF_A_MASTER:
            for value in dict.fromkeys((entry.key.low, entry.key.high, *entry.key.among, *dict(entry.key.special))):
                if (not entry.key.among or value) and (name, value) not in _REFUSES:
                    yield name, value


_LIMITS_OF_CONNECTIONS = tuple(name for name in NUMBERS if re.match("network.(idle|output|connections)", name))
# Of a master with slaves, of which there is none yet.
_OF_A_MASTER = ("replication.ack_timeout_s", "replication.max_lag_s")
# Beside the limit they need another key at its own edge.
_WITH: dict[tuple[str, float], dict[str, object]] = {
    ("store.segment_bytes", 128 << 10): {"messages.body_bytes_max": 16 << 10},
    ("messages.body_bytes_max", 12 << 20): {"store.segment_bytes": 32 << 20},
    ("network.output_bytes_max", 1 << 20): {
        "network.output_bytes_high": 256 << 10,
        "messages.body_bytes_max": 512 << 10,
        "pull.bytes_max": 512 << 10,
    },
    ("network.output_bytes_high", 1 << 30): {"network.output_bytes_max": 2 << 30},
    ("store.index_entries", 100_000_000): {"store.index_slots": 1},
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "value"), list(_tried()))
async def test_a_broker_works_at_each_edge(tmp_path: Path, name: str, value: float) -> None:
    given = {name: value} | _WITH.get((name, value), {})
    if name in _OF_A_MASTER:
        (tmp_path / "secret").write_text("a secret for tests, long enough")
        given |= {"replication.secret_file": str(tmp_path / "secret"), "network.ha_port": 0}
    await _works(tmp_path, **{key.replace(".", "__"): each for key, each in given.items()})


@pytest.mark.parametrize("at", ["low", "high"])
async def test_a_broker_works_with_every_number_at_one_edge(tmp_path: Path, at: str) -> None:
    chosen: dict[str, object] = {name: each for name, each in _tried() if each == getattr(NUMBERS[name].key, at)}
    if at == "low":
        chosen["messages.body_bytes_max"] = 16 << 10
    else:  # files of 2 GiB each are for the slow test
        chosen |= {"store.segment_bytes": 32 << 20, "store.index_entries": 4000, "store.index_slots": 1000}
        chosen["store.queue_file_entries"] = 1000
    assert len(chosen) > 40
    await _works(tmp_path, **{key.replace(".", "__"): each for key, each in chosen.items()})
