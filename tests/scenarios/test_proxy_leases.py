"""Leased messages over gRPC, by a real proxy and a real broker: received, acknowledged, delivered again, given up."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator

import grpc
import pytest

from gantry.client.admin import Admin
from gantry.proxy import messaging_pb2 as pb
from scenarios.test_proxy import GROUP, Server
from testkit.grpcclient import GrpcClient, handle, message, resource
from testkit.process import GantryProcess


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with GantryProcess(tmp_path_factory.mktemp("leases") / "store", {"standalone.grpc_port": "0"}) as process:
        yield Server(process)
        assert process.stop() == 0
        assert "Traceback" not in process.stderr(), process.stderr()[-4000:]


@pytest.fixture
def topic(server: Server, request: pytest.FixtureRequest) -> str:
    """A topic of its own for each test, whose group has begun."""
    name = f"T{abs(hash(request.node.name)) % 10**9}"

    async def make() -> None:
        async with Admin(nameserver=server.nameserver) as admin:
            await admin.create_topic(name, queues=2, attributes={"message.type": "NORMAL"})
            await admin.create_group(GROUP)

    asyncio.run(make())
    return name


async def sent(client: GrpcClient, topic: str, count: int, **system: str) -> list[str]:
    """The ids of so many messages that were sent."""
    messages = [message(topic, f"{number}".encode(), **system) for number in range(count)]
    for one in messages:
        assert (await client.send(one)).status.code == pb.OK
    return [one.system_properties.message_id for one in messages]


def change(topic: str, text: str, seconds: int) -> pb.ChangeInvisibleDurationRequest:
    return pb.ChangeInvisibleDurationRequest(
        group=resource(GROUP), topic=resource(topic), receipt_handle=text, invisible_duration={"seconds": seconds}
    )


async def test_an_answer_is_a_status_then_messages_then_a_time(server: Server, topic: str) -> None:
    async with server.client() as client:
        ids = await sent(client, topic, 2)
        found = await client.messages(GROUP, topic, 2)
        assert {one.system_properties.message_id for one in found} == set(ids)
        assert all(one.system_properties.delivery_attempt == 1 for one in found)
        empty = await client.receive(GROUP, topic)
        assert (empty.code, empty.kinds) == (pb.MESSAGE_NOT_FOUND, ["status", "delivery_timestamp"])
        answer = await client.ack(GROUP, topic, *map(handle, found))
        assert [entry.status.code for entry in answer.entries] == [pb.OK, pb.OK]
        again = await client.ack(GROUP, topic, handle(found[0]))
        assert again.status.code == pb.OK, "an acknowledgement may be repeated"


async def test_a_receive_that_names_only_its_topic_gets_what_a_broker_of_it_has(server: Server, topic: str) -> None:
    async with server.client() as client:
        (message_id,) = await sent(client, topic, 1)
        (found,) = await client.messages(GROUP, topic, 1, broker="")
        assert found.system_properties.message_id == message_id


async def test_a_failed_message_comes_again_with_another_handle(server: Server, topic: str) -> None:
    async with server.client() as client:
        (message_id,) = await sent(client, topic, 1)
        (first,) = await client.messages(GROUP, topic, 1)
        changed = await client.call("ChangeInvisibleDuration", change(topic, handle(first), 600))
        assert changed.status.code == pb.OK and changed.receipt_handle != handle(first)
        stale = await client.ack(GROUP, topic, handle(first))
        assert stale.status.code == pb.INVALID_RECEIPT_HANDLE
        changed = await client.call("ChangeInvisibleDuration", change(topic, changed.receipt_handle, 0))
        assert changed.status.code == pb.OK
        (again,) = await client.messages(GROUP, topic, 1)
        assert again.system_properties.message_id == message_id
        assert (again.system_properties.delivery_attempt, again.topic.name) == (2, topic)
        stale = await client.call("ChangeInvisibleDuration", change(topic, handle(first), 30))
        assert stale.status.code == pb.INVALID_RECEIPT_HANDLE
        assert (await client.ack(GROUP, topic, handle(again))).status.code == pb.OK


async def test_a_renewed_message_that_fails_waits_for_its_groups_delay(server: Server, topic: str) -> None:
    """Node.js asks for no delay at all; a message that always fails must not spin."""
    async with server.client(language="HTTP") as client:
        await sent(client, topic, 1)
        (first,) = await client.messages(GROUP, topic, 1, auto_renew=True)
        changed = await client.call("ChangeInvisibleDuration", change(topic, handle(first), 0))
        assert changed.status.code == pb.OK
        text = pb_payload(changed.receipt_handle)
        assert text.split()[4] == "1000", text  # the invisible time within the handle


def pb_payload(text: str) -> str:
    body = text.partition(".")[0]
    return base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)).decode()


async def test_a_message_that_is_given_up_is_a_dead_letter(server: Server, topic: str) -> None:
    async with server.client() as client:
        (message_id,) = await sent(client, topic, 1)
        (first,) = await client.messages(GROUP, topic, 1)
        request = pb.ForwardMessageToDeadLetterQueueRequest(
            group=resource(GROUP), topic=resource(topic), receipt_handle=handle(first), message_id=message_id
        )
        for _ in range(2):
            found = await client.call("ForwardMessageToDeadLetterQueue", request)
            assert found.status.code == pb.OK, "it may be repeated"
    async with Admin(nameserver=server.nameserver) as admin:
        dead = await admin.messages_by_id(f"%DLQ%{GROUP}", message_id)
        assert len(dead) == 1


async def test_only_wanted_tags_come(server: Server, topic: str) -> None:
    async with server.client() as client:
        await sent(client, topic, 1, tag="black")
        (wanted,) = await sent(client, topic, 1, tag="green")
        expression = pb.FilterExpression(type=pb.TAG, expression="green || white")
        (found,) = await client.messages(GROUP, topic, 1, filter_expression=expression)
        assert found.system_properties.message_id == wanted


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"invisible_duration": {"seconds": 9}}, pb.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_duration": {"seconds": 12 * 3600 + 1}}, pb.ILLEGAL_INVISIBLE_TIME),
        ({"batch_size": 0}, pb.BAD_REQUEST),
        ({"filter_expression": pb.FilterExpression(type=99, expression="a")}, pb.ILLEGAL_FILTER_EXPRESSION),
        ({"filter_expression": pb.FilterExpression(type=pb.SQL, expression="a >")}, pb.ILLEGAL_FILTER_EXPRESSION),
    ],
)
async def test_a_bad_call_is_answered_in_the_form_of_every_answer(
    server: Server, topic: str, fields: dict[str, object], code: int
) -> None:
    async with server.client() as client:
        found = await client.receive(GROUP, topic, **fields)
        assert (found.code, found.kinds) == (code, ["status", "delivery_timestamp"])


async def test_a_deadline_too_near_is_refused_with_the_code_that_the_client_knows(server: Server, topic: str) -> None:
    for version, code in (("5.0.3", pb.ILLEGAL_POLLING_TIME), ("5.0.2", pb.BAD_REQUEST)):
        async with server.client(more=[("x-mq-client-version", version)]) as client:
            assert (await client.receive(GROUP, topic, timeout_s=4)).code == code


async def test_handles_of_others_are_refused(server: Server, topic: str) -> None:
    async with server.client() as client:
        await sent(client, topic, 1)
        (first,) = await client.messages(GROUP, topic, 1)
        for group, text in (("others", handle(first)), (GROUP, "nonsense"), (GROUP, handle(first)[:-3])):
            answer = await client.ack(group, topic, text)
            assert answer.status.code == pb.INVALID_RECEIPT_HANDLE
        mixed = await client.ack(GROUP, topic, "nonsense", handle(first))
        assert mixed.status.code == pb.MULTIPLE_RESULTS
        assert [entry.status.code for entry in mixed.entries] == [pb.INVALID_RECEIPT_HANDLE, pb.OK]


async def test_a_clients_goodbye_gives_back_what_it_has(server: Server, topic: str) -> None:
    async with server.client() as client, server.client() as other:
        (message_id,) = await sent(client, topic, 1)
        await client.messages(GROUP, topic, 1, auto_renew=True)
        request = pb.NotifyClientTerminationRequest(group=resource(GROUP))
        assert (await client.call("NotifyClientTermination", request)).status.code == pb.OK
        (found,) = await other.messages(GROUP, topic, 1)  # long before the 60 s of a renewed lease
        assert found.system_properties.message_id == message_id


async def test_what_was_never_written_is_given_back(server: Server, topic: str) -> None:
    """A client that goes while it waits: the message that came for it is soon there for others."""
    async with server.client() as client, server.client() as other:
        call = client.receiving(GROUP, topic, 30)
        reading = asyncio.ensure_future(call.read())
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises((asyncio.CancelledError, grpc.aio.AioRpcError)):
            await reading
        (message_id,) = await sent(other, topic, 1)
        (found,) = await other.messages(GROUP, topic, 1)
        assert found.system_properties.message_id == message_id
