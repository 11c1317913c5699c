"""Whatever is done with a folder that Apache's broker and GantryMQ exchange, each finds what was acknowledged.

Sessions are drawn: whose the folder is, what is sent and committed, and how the session ends.
`exchange` has the model.  An example costs several starts of a JVM, so there are few of them and a red one is not
made smaller: Hypothesis prints the line that repeats it.  GANTRY_FOLDER_EXAMPLES sets another number of examples.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from interop import servers
from interop.exchange import BULK_BYTES, Exchange

EXAMPLES = int(os.environ.get("GANTRY_FOLDER_EXAMPLES", "12"))
SEGMENTS_BYTES = (512 << 10, 4 << 20)  # several segments, and only one
# Files of queues and of the index are small as well: a few sends roll them.
SETTINGS: servers.Settings = {
    "maxMessageSize": 1 << 16,
    "mappedFileSizeConsumeQueue": 20 * 64,
    "maxHashSlotNum": 200,
    "maxIndexNum": 800,
}

Session = tuple[bool, list[tuple[object, ...]], str]
names = st.sampled_from("TU")
kinds = st.sampled_from(["plain", "plain", "batch", "delayed", "commit", "roll back"])
sizes = st.sampled_from([20, 300, 2000])
sends = st.tuples(st.just("send"), names, kinds, st.integers(0, 5), st.integers(1, 24), sizes)
rolls = st.tuples(
    st.just("send"), st.just("Bulk"), st.just("plain"), st.just(0), st.integers(4, 10), st.just(BULK_BYTES)
)
deletions = st.tuples(st.just("delete"), names)
again = st.tuples(st.just("make_again"), names, st.integers(1, 6), st.integers(1, 12))
resizes = st.tuples(st.just("resize"), names, st.integers(1, 6))
commits = st.tuples(st.just("commit"), names, st.integers(0, 5), st.sampled_from([0.0, 0.5, 1.0]))
steps = st.lists(st.one_of(sends, sends, sends, rolls, deletions, again, resizes, commits), min_size=2, max_size=7)
# Whether the owner changes before the session, what is done in it, how it ends.
sessions = st.tuples(st.sampled_from([True, True, True, False]), steps, st.sampled_from(["stop", "kill"]))


@pytest.fixture(scope="module", params=["4.9.7", "5.x"])
def apache(
    request: pytest.FixtureRequest, every_tool: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[servers.Apache]:
    """A name server that lives as long as all examples, and a broker that each of them gives its own folder."""
    home = tmp_path_factory.mktemp("apache")
    made = servers.Apache(request.param, home, home / "data")
    yield made
    made.close()


def play(exchange: Exchange, drawn: list[Session], brokers: dict[bool, servers.Server], is_java: bool) -> None:
    for number, (_, steps, end) in enumerate(drawn):
        exchange.begin(brokers[is_java])
        exchange.check()
        for what, *how in steps:
            getattr(exchange, str(what))(*how)
        is_changed = number + 1 == len(drawn) or drawn[number + 1][0] or exchange.has_to_change
        is_java = is_java is not is_changed
        exchange.end(end, is_java_next=is_java)
    exchange.begin(brokers[is_java])
    exchange.check()


@pytest.mark.slow
@pytest.mark.timeout(5000)
@settings(
    max_examples=EXAMPLES,
    database=None,
    print_blob=True,
    phases=[Phase.explicit, Phase.generate],
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
@given(
    segment_bytes=st.sampled_from(SEGMENTS_BYTES),
    is_java_first=st.booleans(),
    drawn=st.lists(sessions, min_size=2, max_size=5),
)
def test_one_that_opens_the_folder_finds_what_was_acknowledged_and_nothing_else(
    apache: servers.Apache,
    tmp_path_factory: pytest.TempPathFactory,
    segment_bytes: int,
    is_java_first: bool,
    drawn: list[Session],
) -> None:
    home = tmp_path_factory.mktemp("folder")
    chosen = {**SETTINGS, "mappedFileSizeCommitLog": segment_bytes}
    ours = servers.Gantry(home / "gantry", home / "data", chosen)
    apache.give(home / "data", chosen)
    exchange = Exchange(home / "data")
    try:
        play(exchange, drawn, {True: apache, False: ours}, is_java_first)
    finally:
        exchange.close()
        apache.kill()
        ours.kill()
