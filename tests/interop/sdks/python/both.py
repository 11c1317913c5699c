"""RocketMQ 5's client and our own stubs of its protocol in one process: each sends what the other one receives.

    both.py ours|theirs ENDPOINTS TOPIC GROUP      which of them is imported first

Prints the bodies that each of them received, as JSON.
"""

import asyncio
import importlib
import json
import sys
from concurrent.futures import ThreadPoolExecutor

MODULES = {"ours": "testkit.grpcclient", "theirs": "rocketmq"}
first, endpoints, topic, group = sys.argv[1:]
for name in (first, *(set(MODULES) - {first})):
    importlib.import_module(MODULES[name])

import rocketmq  # noqa: E402  after the order that was asked for

from testkit.grpcclient import GrpcClient, handle, message  # noqa: E402

PATIENCE_S = 60


async def by_ours():
    """Receive what the SDK has sent, and send something."""
    async with GrpcClient(int(endpoints.rpartition(":")[2])) as client:
        (found,) = await client.messages(group, topic, 1)
        await client.ack(group, topic, handle(found))
        answer = await client.send(message(topic, b"from ours"))
        assert answer.status.code == 20000, answer
        return found.body.decode()


configuration = rocketmq.ClientConfiguration(endpoints, rocketmq.Credentials())
producer = rocketmq.Producer(configuration, (topic,))
producer.startup()
sent = rocketmq.Message()
sent.topic, sent.body = topic, b"from theirs"
producer.send(sent)
# Its own thread: `asyncio.run` leaves the thread without a loop, and the SDK asks for the main thread's
# whenever an answer arrives before its callback is attached.
with ThreadPoolExecutor(1) as thread:
    received = [thread.submit(asyncio.run, by_ours()).result()]
consumer = rocketmq.SimpleConsumer(configuration, group, {topic: rocketmq.FilterExpression()}, await_duration=5)
consumer.startup()
for _ in range(PATIENCE_S // 5):
    found = consumer.receive(1, 30)
    if found:
        received.append(found[0].body.decode())
        consumer.ack(found[0])
        break
consumer.shutdown()
producer.shutdown()
print(json.dumps(received))
