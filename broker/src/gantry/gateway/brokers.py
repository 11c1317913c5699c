"""What a gateway knows of the cluster, and its connections: routes, attributes of topics, configurations of groups.

Everything is asked of name servers and brokers, and kept for a short time only: a gateway has no state that another
one lacks.  Heartbeats to brokers name the topics of live transactional producers as producer groups, so that brokers
send the checks of their halves here (facts: protocol, section 15).  Consumers are not registered: a broker would share
queues between this process and members that use remoting.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from functools import partial
from typing import Generic, TypeVar

from gantry.client.connections.routes import Routes
from gantry.client.connections.session import Session
from gantry.client.identity import ClientIdentity
from gantry.client.popping import Popping
from gantry.client.requests import admin_requests, questions
from gantry.client.requests.question import Question
from gantry.clock import Clock
from gantry.errors import GantryError, OutcomeUnknownError, RefusedError, UnreachableError
from gantry.leaves.frames import Command
from gantry.model import names
from gantry.model.route import TopicRoute
from gantry.model.subscription import GroupConfig
from gantry.transport.connection import Connection
from gantry.transport.limits import ConnectionLimits
from gantry.transport.tasks import cancelled, essential
from gantry.wire.codes import ResponseCode
from gantry.wire.heartbeat import Heartbeat

T = TypeVar("T")
log = logging.getLogger(__name__)

_ASK_S = 3.0
_PATIENCE_S = 1.0  # for a new answer where there is an old one
_FRESH_S = 5.0  # how long the type of a topic and the configuration of a group are kept
_SILENT_S, _SHORT_S = 10.0, 0.05  # so soon after a request that was not answered, the next one is waited for so long
_KEPT_MAX = 5_000
_GROUPS_MAX = 1_900  # producer groups of a heartbeat; brokers take 2 000 entries
_PAUSE_S = 0.2
# One connection to a broker has all pops that are held there, and they must leave room for other requests.
LIMITS = ConnectionLimits(pending_max=1 << 16)
_MEET_S = 5.0  # lost connections to the brokers of transactional topics are made again


class Fresh(Generic[T]):
    """Values that are asked for again when they are old; concurrent callers for one name share a request.

    While nobody answers, the last answer stays in use: brokers go on without name servers, and so do their leases.
    """

    def __init__(self, ask: Callable[[str], Awaitable[T]], fresh_s: float = _FRESH_S) -> None:
        self._ask = ask
        self._fresh_s = fresh_s
        self._known: OrderedDict[str, tuple[float, asyncio.Future[T]]] = OrderedDict()
        self._answers: OrderedDict[str, T] = OrderedDict()  # the last one of each name

    def forget(self, name: str, *, also_answer: bool = False) -> None:
        """Ask for this value again at its next use; also_answer: it is not used either while nobody answers."""
        self._known.pop(name, None)
        if also_answer:
            self._answers.pop(name, None)

    def at_hand(self, name: str) -> T | None:
        """Return the value if it is known and fresh, without waiting; None else."""
        asked_at, future = self._known.get(name, (0.0, None))
        if future is None or not future.done() or future.cancelled() or future.exception() is not None:
            return None
        if asyncio.get_running_loop().time() - asked_at >= self._fresh_s:
            return None
        return future.result()

    def last(self, name: str) -> T | None:
        """Return what was answered last, however old it is; None before the first answer."""
        return self._answers.get(name)

    async def get(self, name: str) -> T:
        """Return the value, as it was at most `fresh_s` ago, or when it was answered last; the errors of the request.

        A refusal is an answer: the value is not known any more.
        """
        now, patience_s = asyncio.get_running_loop().time(), _PATIENCE_S
        asked_at, future = self._known.get(name, (-self._fresh_s, None))
        if future is None or now - asked_at >= self._fresh_s:
            is_silent = future is not None and now - asked_at < _SILENT_S and (not future.done() or _failed(future))
            if is_silent and future is not None and not future.done() and name in self._answers:
                return self._answers[name]  # the request that is under way ends by its own time
            future = asyncio.ensure_future(self._ask(name))
            future.add_done_callback(partial(self._came, name))
            self._known[name] = now, future
            self._known.move_to_end(name)
            while len(self._known) > _KEPT_MAX:
                self._known.popitem(last=False)
            if is_silent:
                patience_s = _SHORT_S
        try:
            async with asyncio.timeout(patience_s if name in self._answers else None):
                answer = await asyncio.shield(future)
        except (UnreachableError, OutcomeUnknownError, TimeoutError):
            # Kept for `fresh_s`, so that not every call waits for silent servers.
            if name in self._answers:
                return self._answers[name]
            self._dropped(name, future)
            raise
        except GantryError:
            self._dropped(name, future)
            raise
        return answer

    def _came(self, name: str, future: asyncio.Future[T]) -> None:
        """Keep an answer, also when nobody waits for it any more: of servers that are slow none ever came in time."""
        if _failed(future):
            return
        newer = self._known.get(name, (0.0, future))[1]
        if newer is not future and newer.done() and not _failed(newer):
            return  # this one was asked before a change
        if future.exception() is not None:
            if isinstance(future.exception(), GantryError):
                self._answers.pop(name, None)
            return
        self._answers[name] = future.result()
        self._answers.move_to_end(name)
        while len(self._answers) > _KEPT_MAX:
            self._answers.popitem(last=False)

    def _dropped(self, name: str, future: asyncio.Future[T]) -> None:
        if self._known.get(name, (0.0, None))[1] is future:
            del self._known[name]


def _failed(future: asyncio.Future[T]) -> bool:
    return future.cancelled() or isinstance(future.exception(), (UnreachableError, OutcomeUnknownError))


class Brokers:
    """The way to name servers and brokers; start() once, close() at the end."""

    def __init__(
        self,
        nameservers: Sequence[str],
        clock: Clock,
        on_request: Callable[[Connection, Command], bool],
        transactional: Callable[[], Sequence[str]],
    ) -> None:
        self.session = Session(nameservers, self._heartbeat, on_request, limits=LIMITS)
        self.routes = Routes(self.session)
        self.popping = Popping(self.session, self.routes)
        self._identity = ClientIdentity(self.session.nameservers[0], clock)
        self.random = self._identity.random
        self.ids = self._identity.message_ids
        self._transactional = transactional  # topics of live transactional producers
        self._announced: frozenset[str] = frozenset()
        self._attributes = Fresh(self._ask_attributes)
        self._groups = Fresh(self._ask_group)
        self._cluster = Fresh(self._ask_cluster)
        self._meeting: asyncio.Task[None] | None = None

    def start(self, fail: Callable[[str], None]) -> None:
        """Start heartbeats and the refreshing of routes; connections are made when they are needed.

        fail: called with the reason when checks of transactions will not come any more.
        """
        self.session.start()
        self.routes.start()
        self._meeting = essential(self._meet(), "gantry-gateway-presence", fail)

    async def close(self) -> None:
        """Unregister at all brokers and close the connections."""
        if self._meeting is not None:
            await cancelled([self._meeting])
        await self.session.close()

    async def route(self, topic: str) -> TopicRoute:
        """Return where a topic's queues are; RefusedError 17, UnreachableError."""
        return await self.routes.route(topic)

    async def attributes(self, topic: str) -> Mapping[str, str]:
        """Return the attributes of a topic; none where its brokers do not have it.

        RefusedError 17 when no name server knows it, UnreachableError.
        """
        return await self._attributes.get(topic)

    async def group(self, group: str) -> GroupConfig | None:
        """Return a group's configuration; None when no broker has it or none answers."""
        try:
            return await self._groups.get(group)
        except GantryError as error:
            log.info("group %s: its configuration is not known: %s", group, error)
            return None

    async def is_orderly(self, group: str) -> bool:
        """Return whether a group consumes in order; UnreachableError or OutcomeUnknownError when no broker says it.

        Not False then: a pop without order would break the order of a group that has one.
        """
        try:
            config = await self._groups.get(group)
        except RefusedError as error:
            log.info("group %s: its configuration is not known: %s", group, error)
            return False
        return config is not None and config.consume_orderly

    @property
    def cluster_name(self) -> str:
        """The cluster of the brokers, as the name servers said last; empty before, several are joined by commas."""
        cluster = self._cluster.last("")
        return "" if cluster is None else ",".join(sorted(cluster.clusters))

    async def masters(self) -> dict[str, str]:
        """Return the addresses of all masters by group; UnreachableError when no name server answers."""
        masters = (await self._cluster.get("")).masters()
        if not masters:
            self.doubt_masters()  # one may come at any time
        return masters

    async def every_master(self) -> dict[str, str]:
        """Return the same for a change that has to reach all groups; UnreachableError when one has no master now.

        Such a group would keep what the others change or delete, and its next master would bring it back.  So would one
        that has joined since the list was read: it is read again, as long as a name server answers.
        """
        self.doubt_masters()
        cluster = await self._cluster.get("")
        lacking = sorted(name for name, data in cluster.groups.items() if data.master is None)
        if lacking:
            self.doubt_masters()
            raise UnreachableError(f"{', '.join(lacking[:5])}: no master of this broker group is registered; try again")
        return some_master(cluster.masters())

    def doubt_masters(self) -> None:
        """Ask for the masters again before their next use, because one did not answer."""
        self._cluster.forget("")

    async def master_of(self, broker: str) -> str:
        """Return the address of a broker group's master; UnreachableError when it has none now."""
        address = (await self.masters()).get(broker)
        if address is None:
            raise UnreachableError(f"{broker}: no master of this broker group is registered")
        return address

    async def until_done(
        self, broker: str, question: Question[T], within_s: float, only_if_unsent: bool = False
    ) -> T:
        """Ask the present master of a broker group until it answers; only for what may be repeated.

        The last error when the time is up; a final refusal at once, and OutcomeUnknownError with `only_if_unsent`.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while True:
            try:
                address = await self.master_of(broker)
                return await self.session.ask(address, question, min(_ASK_S, max(0.01, deadline - loop.time())))
            except (RefusedError, UnreachableError, OutcomeUnknownError) as error:
                is_final = isinstance(error, RefusedError) and not error.retriable
                is_final |= only_if_unsent and isinstance(error, OutcomeUnknownError)
                if is_final or loop.time() + _PAUSE_S >= deadline:
                    raise
            self.doubt_masters()
            await asyncio.sleep(_PAUSE_S)

    async def knock(self, address: str) -> None:
        """Ask a broker for anything, to know that it answers; RefusedError, UnreachableError, OutcomeUnknownError."""
        await self.session.ask(address, admin_requests.topic_config(names.TEMPLATE_TOPIC), _ASK_S)

    async def tell_all(self, question: Callable[[], Question[None]]) -> None:
        """Send a request to every master; a failure is logged, because it is sent again or ends by itself."""
        try:
            masters = await self.masters()
        except GantryError as error:
            log.info("the list of brokers could not be read: %s", error)
            return
        await asyncio.gather(*(self._tell(address, question()) for address in masters.values()))

    def has_announced(self, topics: Set[str]) -> bool:
        """Return whether the brokers of these topics know that there are producers here."""
        return topics <= self._announced

    async def announce(self) -> None:
        """Tell the brokers of transactional topics at once when one is new; heartbeats do it every 30 s."""
        wanted = self._wanted()
        new, self._announced = wanted - self._announced, wanted
        if not new:
            return
        beat = self._heartbeat()
        addresses = await self._masters_of(new)
        await asyncio.gather(*(self._tell(address, questions.heartbeat(beat)) for address in addresses))

    def _wanted(self) -> frozenset[str]:
        return frozenset(sorted(self._transactional())[:_GROUPS_MAX])

    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(self._identity.client_id, tuple(sorted(self._wanted())))

    async def _tell(self, address: str, question: Question[None]) -> None:
        try:
            await self.session.ask(address, question, _ASK_S)
        except GantryError as error:
            log.info("%s: %s", address, error)

    async def _meet(self) -> None:
        while True:
            await asyncio.sleep(_MEET_S)
            await self.announce()
            lost = await self._masters_of(self._announced) - set(self.session.brokers())
            for found in await asyncio.gather(*map(self.session.meet, lost), return_exceptions=True):
                if isinstance(found, BaseException) and not isinstance(found, GantryError):
                    raise found

    async def _masters_of(self, topics: frozenset[str]) -> set[str]:
        found: set[str] = set()
        for topic in topics:
            try:
                route = await self.routes.route(topic)
            except GantryError:
                continue
            found.update(broker.master for broker in route.brokers if broker.master is not None)
        return found

    async def _ask_cluster(self, _: str) -> admin_requests.Cluster:
        return await self.session.ask_nameserver(admin_requests.cluster_info())

    async def _ask_attributes(self, topic: str) -> Mapping[str, str]:
        route = await self.routes.route(topic)
        addresses = [broker.master for broker in route.brokers if broker.master is not None]
        config = await self._first(addresses, admin_requests.topic_config(topic), ResponseCode.TOPIC_NOT_EXIST)
        return {} if config is None else config.attributes

    async def _ask_group(self, group: str) -> GroupConfig | None:
        addresses = list((await self.masters()).values())
        missing = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        return await self._first(addresses, admin_requests.group_config(group), missing)

    async def _first(self, addresses: Sequence[str], question: Question[T], missing: int) -> T | None:
        """Return the first answer; None when every broker that answers does not have it, else the last error."""
        failure: GantryError | None = None
        is_missing = False
        for address in addresses:
            try:
                return await self.session.ask(address, question, _ASK_S)
            except RefusedError as error:
                is_missing |= error.code == missing
                failure = error
            except GantryError as error:
                failure = error
        if is_missing or failure is None:
            return None
        raise failure


def some_master(masters: dict[str, str]) -> dict[str, str]:
    """Return the masters; UnreachableError when there is none: then nobody knows what the cluster has."""
    if not masters:
        raise UnreachableError("no broker with a master is registered; start one, or try again after a failover")
    return masters
