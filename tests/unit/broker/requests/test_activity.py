from __future__ import annotations

import pytest

from gantry.broker.requests.activity import ALSO_WITHOUT_LEASE, BY_EVERY_MEMBER, ONLY_BY_ACTIVE_MASTER, Activity
from gantry.leaves.frames import Command
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import reply, request
from testkit import readme
from testkit.fake_connection import FakeConnection


def asked(activity: Activity, code: RequestCode) -> tuple[int, str | None]:
    def handler(connection: object, command: Command) -> Command:
        return reply(command)

    answer = activity.guarded({code: handler})[code](FakeConnection(), request(code))  # type: ignore[arg-type]
    assert isinstance(answer, Command)
    return answer.code, answer.remark


def test_without_a_serving_lease_nothing_is_read_and_nothing_is_committed() -> None:
    activity = Activity(lambda: False)
    activity.begin()
    for code in (*BY_EVERY_MEMBER, *ONLY_BY_ACTIVE_MASTER):
        refused, remark = asked(activity, code)
        assert refused == ResponseCode.SYSTEM_BUSY and "serving lease" in (remark or "")


@pytest.mark.parametrize("code", sorted(ALSO_WITHOUT_LEASE))
def test_who_is_there_is_heard_without_a_serving_lease(code: RequestCode) -> None:
    """A master that has just begun has none for a moment, and clients say who they are once in half a minute."""
    activity = Activity(lambda: False)
    assert asked(activity, code) == (0, None)


def test_what_only_a_working_master_does_is_refused_until_it_works() -> None:
    activity = Activity(lambda: True)
    assert asked(activity, RequestCode.UPDATE_AND_CREATE_TOPIC)[0] == ResponseCode.NO_PERMISSION
    activity.begin()
    assert asked(activity, RequestCode.UPDATE_AND_CREATE_TOPIC)[0] == 0
    activity.end(lambda: "it is over")
    assert asked(activity, RequestCode.END_TRANSACTION) == (ResponseCode.SLAVE_NOT_AVAILABLE, "it is over")


def test_who_serves_a_request_was_chosen_for_every_code_of_the_table_and_for_no_other() -> None:
    sets = (ALSO_WITHOUT_LEASE, BY_EVERY_MEMBER, ONLY_BY_ACTIVE_MASTER)
    chosen = sorted(code for each in sets for code in each)
    served = sorted(code for server, code in readme.handlers() if server == "broker")
    assert chosen == served, "put a new request into one set of gantry/broker/requests/activity.py"
