"""No request and no periodic job reads a page of the store on the loop that is not in memory: of old segments, queue
files and index files.

What is not tried stands in broker/docs/hot-path.md.  Every entry of the two tables is tried beside old messages
(`testkit.coldpages`); a new one is tried by itself.  One that reads old messages by a header or body of its own needs
that there: `READ_OLD_MESSAGES` are those that do now.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from testkit.coldpages import CONTROL, GIVEN_UP_IN_ORDER, METRICS, USED_UP_IN_ORDER
from unit.broker.test_growth import JOBS, REQUESTS

Found = dict[str, tuple[list[str], int | None]]

READ_OLD_MESSAGES = {
    "PULL_MESSAGE",
    "LITE_PULL_MESSAGE",
    "POP_MESSAGE",
    "QUERY_MESSAGE",
    "VIEW_MESSAGE_BY_ID",
    "SEARCH_OFFSET_BY_TIMESTAMP",
    "GET_EARLIEST_MSG_STORETIME",
    "CONSUMER_SEND_MSG_BACK",
    "GET_TOPIC_STATS_INFO",
    "GET_CONSUME_STATS",
    "GET_BROKER_CONSUME_STATS",
    "QUERY_CONSUME_TIME_SPAN",
    "END_TRANSACTION",
    "LIST_TRANSACTIONS",
    "SHOW_TRANSACTION",
    "SETTLE_TRANSACTION",
    "LIST_DELAYED",
    "CANCEL_DELAYED",
    "RECALL_MESSAGE",
    "RETIME_DELAYED",
    "SHOW_RETENTION",
    "ACK_MESSAGE",
    "BATCH_ACK_MESSAGE",
    "CHANGE_MESSAGE_INVISIBLETIME",
    "FORWARD_TO_DLQ",
    GIVEN_UP_IN_ORDER,
    USED_UP_IN_ORDER,
}
# Only in a group of brokers.
_IN_GROUPS = {"replication", "replication secret"}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    command = [sys.executable, "-m", "testkit.coldpages", str(tmp_path_factory.mktemp("cold"))]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    answers: Found = json.loads(done.stdout)
    return answers


def test_a_read_of_a_cold_page_is_seen(found: Found) -> None:
    stack, _ = found[CONTROL]
    assert any("size_at" in line for line in stack)


def test_every_request_and_job_is_tried(found: Found) -> None:
    more = {CONTROL, METRICS, GIVEN_UP_IN_ORDER, USED_UP_IN_ORDER}
    assert {code.name for code in REQUESTS} | JOBS.keys() == found.keys() - more | _IN_GROUPS


def test_what_reads_old_messages_is_answered(found: Found) -> None:
    assert {name: found[name][1] for name in READ_OLD_MESSAGES} == dict.fromkeys(READ_OLD_MESSAGES, 0)


def test_nothing_reads_a_cold_page_on_the_loop(found: Found) -> None:
    assert {name: stack for name, (stack, _) in found.items() if stack and name != CONTROL} == {}
