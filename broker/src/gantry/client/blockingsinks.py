"""Decides and completes batches of sinks over plain sockets, for a Spark driver and `gantry tx resolve`.

    commit     a reservation in every other group that has a master or halves of the batch, DECIDE_BATCH at the sink's
               home, then END_BATCH in every group until nothing is left, then "done".  A group that could not learn the
               decision refuses the reservation, so no decision becomes visible in one group and not in another
    abort      the same for parts that must never be committed, unless the batch was committed before
    forget     in every group, the home last; a group without a master refuses it

Every step may be repeated, so each is tried again until `within_s` is over, for example while a group elects a master.
The next call for the same sink completes what is left: the decision names the committed parts and the groups that have
their halves.  Those groups have to answer, others need not.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Protocol, TypeVar

from gantry.client.connections.blockingsession import TIMEOUT_S, BlockingSession
from gantry.client.requests import admin_requests
from gantry.client.requests.admin_requests import Cluster
from gantry.client.requests.question import Question
from gantry.client.requests.sink_requests import (
    ABORT,
    ASK,
    COMMIT,
    DONE,
    FORGET,
    PASSING,
    OpenPartInfo,
    SettledHalves,
    SinkBatch,
    SinkDecision,
    SinkInfo,
    SinkPage,
    decided,
    ended,
    listed,
    reserved,
)
from gantry.errors import (
    ClosedError,
    GantryError,
    OutcomeUnknownError,
    RefusedError,
    RemoteProtocolError,
    UnreachableError,
)
from gantry.wire.codes import ResponseCode

T = TypeVar("T")

_AGAIN_S = (0.05, 1.0)
_ASK_S = 20.0
_IDLE_ROUNDS_MAX = 5  # of ends that end nothing although something is left


class NotAGantryError(GantryError):
    """The broker does not support requests for sinks."""


class BlockingRequester(Protocol):
    """Sends requests to brokers and name servers; `BlockingSession` implements it."""

    @property
    def nameservers(self) -> Sequence[str]:
        """Addresses of the name servers."""

    def ask(self, address: str, question: Question[T], timeout_s: float = ..., /) -> T:
        """Return the answer of the server at this address."""

    def close(self) -> None:
        ...


class BlockingSinks:
    """Not shared between threads. `within_s`: how many seconds each call may take."""

    def __init__(
        self, nameserver: str | Sequence[str], within_s: float = 120.0, session: BlockingRequester | None = None
    ) -> None:
        self._session = session or BlockingSession(nameserver, None)
        self._within_s = within_s
        self._chance = random.Random()

    def close(self) -> None:
        self._session.close()

    def __enter__(self) -> BlockingSinks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cluster(self, within_s: float = TIMEOUT_S) -> Cluster:
        """Return the registered brokers, from the first name server that knows any; all together are asked for
        `within_s` at most.
        """
        deadline, failure = time.monotonic() + within_s, ""
        for address in self._session.nameservers:
            left_s = deadline - time.monotonic()
            try:
                found = self._session.ask(address, admin_requests.cluster_info(), min(TIMEOUT_S, left_s))
            except ClosedError:
                raise
            except (UnreachableError, OutcomeUnknownError, RefusedError, RemoteProtocolError) as error:
                failure = f": {error}"  # the next name server may answer
                continue
            if found.groups:
                return found
        raise UnreachableError(f"no broker is registered at {', '.join(self._session.nameservers)}{failure}")

    def home_of(self, sink: str, is_new: bool = False) -> str:
        """Return the sink's home, the group that decides about it: the one that any group names, else one by a hash.

        A group reserves the sink before its first decision, so other groups know the home too.  When a group that
        answers knows it, groups without a master are not waited for.  When no group knows the sink, it is new, or only
        a group without a master knows it: then all groups have to answer.  A sink with a newly made name (`is_new`) is
        certainly unknown: its home is chosen among the groups that answer.

        Open halves name their home too: that group may have decided and have left the name servers before another group
        learned of it.
        """
        deadline = time.monotonic() + self._within_s
        groups = sorted(self._patiently(self.cluster, deadline).groups)
        known: set[str] = set()
        silent = []
        for group in groups:
            try:
                known |= _homes(self._once(group, listed(group, sink), deadline - time.monotonic()), sink)
            except ClosedError:
                raise
            except (UnreachableError, OutcomeUnknownError):
                silent.append(group)
            except RefusedError as error:
                _check_known(error)
                if error.code not in PASSING:
                    raise
                silent.append(group)
        answered = [group for group in groups if group not in silent]
        if not known and not (is_new and answered):
            for group in silent:
                known |= _homes(self._until(group, listed(group, sink), deadline), sink)
            answered = groups
        if len(known) > 1:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, f"sink {sink} has several homes: {', '.join(sorted(known))}")
        return known.pop() if known else max(answered, key=lambda name: sha256(f"{sink}/{name}".encode()).digest())

    def look(self, sink: str = "") -> tuple[list[SinkInfo], list[OpenPartInfo], int]:
        """Return the decisions and the open parts that every group has of a sink, or of all, and how many did
        not fit.
        """
        infos: list[SinkInfo] = []
        parts: list[OpenPartInfo] = []
        more = 0
        deadline = time.monotonic() + self._within_s
        known = self._patiently(self.cluster, deadline)
        for group in sorted(known.groups):
            page = self._until(group, listed(group, sink), deadline)
            infos += page.sinks
            parts += page.parts
            more += page.more
        return infos, parts, more

    def decision(self, one: SinkBatch) -> SinkDecision:
        """Return the newest decision of the sink."""
        return self._until(one.home, decided(one, ASK), time.monotonic() + self._within_s)

    def commit(self, one: SinkBatch, parts: Sequence[str], groups: Sequence[str], operator: str = "") -> SinkDecision:
        """Commit the batch, or complete the decision that it has; its halves are ended in every group when this
        returns.

        The decision's `parts` are the committed ones; empty when the batch was completed before. RefusedError 201: a
        part was aborted, or the sink is at a later batch, or a group could not learn the decision.
        """
        deadline = time.monotonic() + self._within_s
        if parts:
            self._reserve(one, groups, deadline)
        while True:
            decision = self._until(one.home, decided(one, COMMIT, parts, groups, operator), deadline)
            if decision.batch >= one.batch:
                break
            self.finish(replace(one, batch=decision.batch), decision, deadline)
        self.finish(one, decision, deadline)
        return decision

    def abort(self, one: SinkBatch, parts: Sequence[str], operator: str = "") -> SinkDecision:
        """Make sure that these parts are never committed. Return the decision; the batch may have been committed
        before.
        """
        deadline = time.monotonic() + self._within_s
        decision = self._until(one.home, decided(one, ABORT, parts, (), operator), deadline)
        if decision.batch >= one.batch:
            self.finish(replace(one, batch=decision.batch), decision, deadline)
        else:
            masters = self._patiently(self.cluster, deadline).masters()
            for group in sorted({*masters, one.home}):
                self._end(group, ended(one, None, parts), deadline)
        return decision

    def finish(self, one: SinkBatch, decision: SinkDecision, deadline: float | None = None) -> None:
        """End the decided halves in every group, and note at the home that the batch is completed."""
        until = time.monotonic() + self._within_s if deadline is None else deadline
        question = ended(one, None, is_done=True) if decision.is_done else ended(one, decision.parts)
        masters = self._patiently(self.cluster, until).masters()
        for group in sorted({*masters, *decision.groups, one.home}):
            self._end(group, question, until)
        if not decision.is_done:
            self._until(one.home, decided(one, DONE), until)

    def forget(self, one: SinkBatch, operator: str) -> None:
        """Make every registered group forget a sink that is not used any more, its home last.

        Nothing is forgotten while a group does not answer, or has open halves of the sink, or is not registered and may
        have halves of its newest decision. When this fails between two groups, the home still knows the sink; call it
        again.
        """
        deadline = time.monotonic() + self._within_s
        groups = self._patiently(self.cluster, deadline).groups
        if one.home not in groups:
            raise UnreachableError(f"group {one.home}, the home of sink {one.sink}, is not registered; start it first")
        decision = self._until(one.home, decided(one, ASK), deadline)
        away = sorted(set(decision.groups) - groups.keys())
        if away:
            batch = f"batch {decision.batch} of sink {one.sink}"
            whose = f"{batch} is decided, and group {', '.join(away)} has halves of it"
            raise UnreachableError(f"{whose} and is not registered; start it first")
        opened = sorted({part.group for part in self.look(one.sink)[1]})
        if opened:
            remark = f"sink {one.sink} has open halves in {', '.join(opened)}; commit or abort them first"
            raise RefusedError(ResponseCode.INVALID_PARAMETER, remark)
        for group in [*sorted(groups.keys() - {one.home}), one.home]:
            self._until(group, decided(one, FORGET, operator=operator), deadline)

    def _reserve(self, one: SinkBatch, groups: Sequence[str], deadline: float) -> None:
        """Make all groups but the home agree to learn the decision, unless there is one."""
        masters = self._patiently(self.cluster, deadline).masters()
        others = sorted({*masters, *groups} - {one.home})
        if not others or self._is_decided(one, deadline):
            return
        for group in others:
            try:
                self._until(group, reserved(one), deadline)
            except RefusedError:
                if self._is_decided(one, deadline):  # by another driver meanwhile
                    return
                raise

    def _is_decided(self, one: SinkBatch, deadline: float) -> bool:
        return self._until(one.home, decided(one, ASK), deadline).batch >= one.batch

    def _end(self, group: str, question: Question[SettledHalves], deadline: float) -> None:
        idle = 0
        while True:
            answer = self._until(group, question, deadline)
            if not answer.left:
                return
            idle = 0 if answer.settled else idle + 1
            if idle >= _IDLE_ROUNDS_MAX:
                remark = f"{group}: {answer.left} halves are decided and cannot be ended; are their topics there?"
                raise RefusedError(ResponseCode.SYSTEM_ERROR, remark)

    def _until(self, group: str, question: Question[T], deadline: float) -> T:
        """Return the answer of the group's master; waits for a master until the deadline."""
        return self._patiently(lambda left_s: self._once(group, question, left_s), deadline)

    def _once(self, group: str, question: Question[T], within_s: float) -> T:
        """Return the answer of the group's master; UnreachableError when it has none."""
        deadline = time.monotonic() + within_s
        address = self.cluster(within_s).masters().get(group)
        if address is None:
            raise UnreachableError(f"group {group} has no master now")
        return self._session.ask(address, question, min(_ASK_S, deadline - time.monotonic()))

    def _patiently(self, ask: Callable[[float], T], deadline: float) -> T:
        """Return the result of `ask`, called with the seconds that are left; repeated after passing errors until the
        deadline.
        """
        pause_s, longest_s = _AGAIN_S
        while True:
            try:
                return ask(deadline - time.monotonic())
            except RefusedError as error:
                _check_known(error)
                if error.code not in PASSING or time.monotonic() + pause_s >= deadline:
                    raise
            except ClosedError:
                raise
            except (UnreachableError, OutcomeUnknownError):
                if time.monotonic() + pause_s >= deadline:
                    raise
            time.sleep(pause_s * self._chance.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, longest_s)


def _homes(page: SinkPage, sink: str) -> set[str]:
    """Return the homes that a group's decisions and open halves name."""
    return {info.home for info in page.sinks if info.sink == sink} | {
        part.home for part in page.parts if part.sink == sink
    }


def _check_known(error: RefusedError) -> None:
    if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        raise NotAGantryError(f"the broker knows no batches of sinks: {error}") from error
