"""The request handlers of a name server.

The table of codes at the end lists every supported request.  Any other request is refused by code and remark.  An
invalid header or body is answered with SYSTEM_ERROR and a text that names the field.  The frame was valid, so the
connection stays open.

Bodies are standard JSON, compact, all keys quoted, to every client: Java of any age, C++ and Go's
hand-written route parser read this one form.
RocketMQ: its own name server writes unquoted integer keys to clients before 4.9.4; no client needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from gantry.clock import Clock
from gantry.errors import Refusal
from gantry.leaves import hashes
from gantry.leaves.frames import Command
from gantry.model import documents
from gantry.model.route import QueueData
from gantry.model.topic import DataVersion
from gantry.nameserver.keyvalues import ORDER_TOPICS, KeyValues
from gantry.nameserver.readiness import Readiness
from gantry.nameserver.registration import decoding
from gantry.nameserver.settings import Switches
from gantry.nameserver.sliced import SlicedWork
from gantry.nameserver.table import EXPIRY_MS, BrokerRegistration, RouteTable
from gantry.nameserver.topiclist import topic_list
from gantry.nameserver.topicqueues import queues_of
from gantry.transport.connection import Connection
from gantry.wire import headers
from gantry.wire.bodies import asked, dumps
from gantry.wire.codes import RequestCode, ResponseCode, unsupported_remark
from gantry.wire.command import Request, encode_answer, refusal, reply

_TOPICS_AT_ONCE = 500
_AT_ONCE_BYTES = 64 << 10  # of a registration; what is shorter is not worth a task
_BODY_BYTES_MAX = 256 << 10  # of requests that are no registrations of a whole broker
Handler = Callable[[Connection, Command], Command]
Steps = Generator[None, None, Command]


class NameServerHandlers:
    """Answers requests from the route table; its own state is the switches and the counts of requests."""

    def __init__(
        self,
        table: RouteTable,
        key_values: KeyValues,
        clock: Clock,
        switches: Switches,
        readiness: Readiness | None = None,
    ) -> None:
        self.switches = switches
        self.answered: dict[int, int] = {}  # code -> number of requests, for the metrics; unknown codes count as -1
        self._table = table
        self._key_values = key_values
        self._clock = clock
        self._readiness = readiness or Readiness(table, awaits_brokers=False)
        self._sliced = self._table_of_sliced()
        self._handlers = self._table_of_codes()

    def serve(self, connection: Connection, requests: list[Request]) -> None:
        """Answer a batch in its order; what takes too long at once, or is not read, is answered later."""
        for nth, request in enumerate(requests):
            if connection.closed:
                return  # the connection ended in the middle of the batch
            if nth and connection.must_wait():
                connection.postpone(requests[nth:])
                return
            handler = self._handlers.get(request.code)
            self.count(request.code if handler is not None else -1)
            answer = self._answer(connection, request, handler)
            if not request.is_oneway:
                connection.write(encode_answer(request, answer))

    def count(self, code: int) -> None:
        """Count a request for the metrics."""
        self.answered[code] = self.answered.get(code, 0) + 1

    def now_ms(self) -> int:
        """Return milliseconds of a monotonic clock, as the table expects them."""
        return int(self._clock.monotonic() * 1000)

    def _answer(self, connection: Connection, request: Request, handler: Handler | None) -> Command:
        if handler is None or not isinstance(request, Command):
            return reply(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, unsupported_remark(request.code))
        try:
            return handler(connection, request)
        except ValueError as error:
            return reply(request, ResponseCode.SYSTEM_ERROR, f"request {request.code}: {error}")

    # Brokers

    def _register(self, connection: Connection, command: Command) -> Steps:
        """Return the answer to a registration, in slices; the table changes with the last one.  ValueError: invalid."""
        header = headers.parse(command.code, command.ext)
        expected = header.integer("bodyCrc32")
        if expected and hashes.crc31(command.body) != expected:
            return reply(command, ResponseCode.SYSTEM_ERROR, "crc32 not match")
        body = yield from decoding(command.body, header.boolean("compressed"), command.version)
        queues: dict[str, QueueData] = {}
        for number, (topic, config) in enumerate(body.topics.items()):
            queues[topic] = queues_of(header.text("brokerName"), config)
            if number % _TOPICS_AT_ONCE == _TOPICS_AT_ONCE - 1:
                yield
        news = BrokerRegistration(
            cluster=header.text("clusterName"),
            broker_name=header.text("brokerName"),
            broker_id=header.integer("brokerId"),
            address=header.text("brokerAddr"),
            ha_address=header.text("haServerAddr"),
            topics=body.topics,
            version=body.version,
            timeout_ms=header.integer("heartbeatTimeoutMillis", EXPIRY_MS),
            acting_master=header.boolean("enableActingMaster") if header.has("enableActingMaster") else None,
            zone=header.text("__ZONE_NAME"),
            filter_servers=body.filter_servers,
            mappings=body.mappings,
            queues=queues,
        )
        if connection.closed:
            return reply(command, ResponseCode.SYSTEM_ERROR, "the connection ended")  # nobody would unregister it
        answer = self._table.register(news, connection, self.now_ms(), self.switches.registration_deletes_topics)
        if isinstance(answer, Refusal):
            return refusal(command, answer)
        order_topics = self._key_values.table(ORDER_TOPICS) if self.switches.return_order_topics else None
        return reply(
            command,
            ext={"haServerAddr": answer.ha_address, "masterAddr": answer.master_address},
            body=dumps({"table": order_topics}) if order_topics else b"",
        )

    def is_long(self, command: Command) -> bool:
        """Return whether a request may take long: then `in_slices` answers it."""
        if command.code == RequestCode.REGISTER_BROKER:
            # A few compressed bytes may inflate to megabytes.
            return len(command.body) > _AT_ONCE_BYTES or command.ext.get("compressed", "false") != "false"
        return command.code in self._sliced and len(self._table.topics) > _TOPICS_AT_ONCE

    def in_slices(self, connection: Connection, command: Command) -> Steps:
        """Return the answer to a request for which `is_long`, in slices.  ValueError: invalid."""
        return self._sliced[command.code](connection, command)

    def _register_topic(self, _: Connection, command: Command) -> Command:
        header = headers.parse(command.code, command.ext)
        route = _object_of(command)
        queues = [QueueData.from_json(value) for value in documents.array(route, "queueDatas")]
        refused = self._table.register_topic(header.text("topic"), queues, header.text("brokerAddr"))
        return reply(command) if refused is None else refusal(command, refused)

    def _unregister(self, connection: Connection, command: Command) -> Command:
        header = headers.parse(command.code, command.ext)
        names = (header.text("clusterName"), header.text("brokerName"), header.text("brokerAddr"))
        self._table.unregister(*names, connection)
        return reply(command)

    def _query_version(self, _: Connection, command: Command) -> Command:
        header = headers.parse(command.code, command.ext)
        cluster, address = header.text("clusterName"), header.text("brokerAddr")
        known = self._table.version_of(cluster, address)
        told = DataVersion.from_json(_object_of(command)) if command.body else None
        self._table.refresh(cluster, address, self.now_ms())
        changed = known is None or known != told
        return reply(
            command,
            ext={"changed": "true" if changed else "false"},
            body=b"" if known is None else dumps(known.to_json()),
        )

    def _broker_heartbeat(self, _: Connection, command: Command) -> Command:
        header = headers.parse(command.code, command.ext)
        timeout_ms = header.integer("heartbeatTimeoutMills") or None
        self._table.refresh(header.text("clusterName"), header.text("brokerAddr"), self.now_ms(), timeout_ms)
        return reply(command)

    def _member_group(self, _: Connection, command: Command) -> Command:
        header = headers.parse(command.code, command.ext)
        cluster, name = header.text("clusterName"), header.text("brokerName")
        group = self._table.brokers().get(name)
        addresses = {} if group is None else {str(key): address for key, address in group.addresses.items()}
        member_group = {"brokerAddrs": addresses, "brokerName": name, "cluster": cluster}
        return reply(command, body=dumps({"brokerMemberGroup": member_group}))

    # Clients

    def _route(self, _: Connection, command: Command) -> Command:
        topic = headers.parse(command.code, command.ext).text("topic")
        route = self._table.route(topic)
        if route is None:
            is_ready, why = self._readiness.verdict(self.now_ms())
            if not is_ready:
                remark = f"name server not ready: {why}; ask another one, or again in a moment"
                return reply(command, ResponseCode.SYSTEM_ERROR, remark)
            remark = f"No topic route info in name server for the topic: {topic}; create it, or see its broker's log"
            return reply(command, ResponseCode.TOPIC_NOT_EXIST, remark)
        document = route.to_json()
        order = self._key_values.get(ORDER_TOPICS, topic) if self.switches.order_message else None
        if order is not None:
            document["orderTopicConf"] = order
        body = dumps(document)
        mappings = self._table.mappings(topic)
        if mappings:
            body = body[:-1] + b',"topicQueueMappingByBroker":' + mappings + b"}"
        return reply(command, body=body)

    def _cluster_info(self, _: Connection, command: Command) -> Command:
        brokers = {name: data.to_json() for name, data in self._table.brokers().items()}
        return reply(command, body=dumps({"brokerAddrTable": brokers, "clusterAddrTable": self._table.clusters()}))

    def _all_topics(self, _: Connection, command: Command) -> Steps:
        if not self.switches.list_all_topics:
            return reply(command, ResponseCode.NO_PERMISSION, "disable")
        return (yield from self._topics_listed(command, None))

    def _cluster_topics(self, _: Connection, command: Command) -> Steps:
        return self._topics_listed(command, headers.parse(command.code, command.ext).text("cluster"))

    def _topics_listed(self, command: Command, cluster: str | None) -> Steps:
        body = yield from topic_list(self._table, cluster)
        return refusal(command, body) if isinstance(body, Refusal) else reply(command, body=body)

    def _system_topics(self, _: Connection, command: Command) -> Command:
        document: dict[str, object] = {"topicList": self._table.system_topics()}
        addresses = [address for group in self._table.brokers().values() for address in group.addresses.values()]
        if addresses:
            document["brokerAddr"] = addresses[0]  # there the client can ask for the broker's own system topics (305)
        return reply(command, body=dumps(document))

    # Tools

    def _delete_topic(self, _: Connection, command: Command) -> Command:
        header = headers.parse(command.code, command.ext)
        self._table.delete_topic(header.text("topic"), header.text("clusterName") or None)
        return reply(command)

    def _wipe_write_perm(self, _: Connection, command: Command) -> Steps:
        broker_name = headers.parse(command.code, command.ext).text("brokerName")
        count = yield from self._table.wiping_write_perm(broker_name)
        return reply(command, ext={"wipeTopicCount": str(count)})

    def _add_write_perm(self, _: Connection, command: Command) -> Steps:
        broker_name = headers.parse(command.code, command.ext).text("brokerName")
        count = yield from self._table.adding_write_perm(broker_name)
        return reply(command, ext={"addTopicCount": str(count)})

    def _put_key_value(self, _: Connection, command: Command) -> Command:
        header = headers.parse(command.code, command.ext)
        refused = self._key_values.put(header.text("namespace"), header.text("key"), header.text("value"))
        return reply(command) if refused is None else refusal(command, refused)

    def _get_key_value(self, _: Connection, command: Command) -> Command:
        header = headers.parse(command.code, command.ext)
        namespace, key = header.text("namespace"), header.text("key")
        value = self._key_values.get(namespace, key)
        if value is None:
            remark = f"No config item, Namespace: {namespace} Key: {key}"
            return reply(command, ResponseCode.QUERY_NOT_FOUND, remark)
        return reply(command, ext={"value": value})

    def _delete_key_value(self, _: Connection, command: Command) -> Command:
        header = headers.parse(command.code, command.ext)
        self._key_values.delete(header.text("namespace"), header.text("key"))
        return reply(command)

    def _list_key_values(self, _: Connection, command: Command) -> Command:
        namespace = headers.parse(command.code, command.ext).text("namespace")
        table = self._key_values.table(namespace)
        if table is None:
            return reply(command, ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        return reply(command, body=dumps({"table": table}))

    def _get_config(self, _: Connection, command: Command) -> Command:
        return reply(command, body=self.switches.to_text().encode())

    def _update_config(self, _: Connection, command: Command) -> Command:
        changed = self.switches.changed(command.body.decode())
        if isinstance(changed, Refusal):
            return refusal(command, changed)
        self.switches = changed
        return reply(command)

    def _table_of_sliced(self) -> dict[int, Callable[[Connection, Command], Steps]]:
        """Return what goes over all topics: 500 000 at most."""
        return {
            RequestCode.REGISTER_BROKER: self._register,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_perm,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._cluster_topics,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_perm,
        }

    def _table_of_codes(self) -> dict[int, Handler]:
        return {code: _at_once(steps_of) for code, steps_of in self._table_of_sliced().items()} | {
            RequestCode.PUT_KV_CONFIG: self._put_key_value,
            RequestCode.GET_KV_CONFIG: self._get_key_value,
            RequestCode.DELETE_KV_CONFIG: self._delete_key_value,
            RequestCode.UNREGISTER_BROKER: self._unregister,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster_info,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self._register_topic,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._list_key_values,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._system_topics,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_config,
            RequestCode.GET_NAMESRV_CONFIG: self._get_config,
            RequestCode.QUERY_DATA_VERSION: self._query_version,
            RequestCode.GET_BROKER_MEMBER_GROUP: self._member_group,
            RequestCode.BROKER_HEARTBEAT: self._broker_heartbeat,
        }


def _at_once(steps_of: Callable[[Connection, Command], Steps]) -> Handler:
    """Return the handler that carries a request out in one piece."""

    def answer(connection: Connection, command: Command) -> Command:
        return SlicedWork(steps_of(connection, command)).at_once()

    return answer


def _object_of(command: Command) -> dict[str, object]:
    """Return the JSON object of a body; ValueError when it is none, or has more than `_BODY_BYTES_MAX`."""
    if len(command.body) > _BODY_BYTES_MAX:
        raise ValueError(f"the body has {len(command.body)} bytes, {_BODY_BYTES_MAX} are allowed")
    return asked(command.body)
