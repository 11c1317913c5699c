"""RocketMQ 5's client for Python under remote control: JSON commands on stdin, JSON answers on stdout.

The same commands as in the drivers for Node.js and Java.  Every delivery is an event with the number of times that this
process has seen the message, and a listener fails as often as it is told to.
"""

import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType

ANSWERS = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)
WRITING = threading.Lock()
RESOLUTIONS = {
    "commit": TransactionResolution.COMMIT,
    "rollback": TransactionResolution.ROLLBACK,
    "unknown": TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED,
}


def emit(line):
    with WRITING:
        ANSWERS.write(json.dumps(line) + "\n")


def described(message):
    return {
        "topic": message.topic,
        "messageId": message.message_id,
        "keys": sorted(message.keys),
        "tag": message.tag,
        "group": message.message_group or "",
        "attempt": message.delivery_attempt,
        "body": message.body.decode(),
        "colour": message.properties.get("colour"),
        "isCorrupted": message.corrupted,
    }


class Checker(TransactionChecker):
    def check(self, message):
        emit({"event": "checked", **described(message)})
        return RESOLUTIONS[message.properties["answer"]]


class Listener(MessageListener):
    def __init__(self, command):
        self.command = command
        self.seen = {}

    def consume(self, message):
        times = self.seen[message.message_id] = self.seen.get(message.message_id, 0) + 1
        emit({"event": "message", "consumer": self.command["id"], "times": times, **described(message)})
        time.sleep(self.command.get("slow_s", 0))
        fails = self.command.get("fail") or times <= self.command.get("fail_times", 0)
        emit({"event": "failed" if fails else "done", "consumer": self.command["id"], "body": message.body.decode()})
        return ConsumeResult.FAILURE if fails else ConsumeResult.SUCCESS


class Driver:
    def __init__(self, endpoints, tls):
        self.configuration = ClientConfiguration(endpoints, Credentials(), request_timeout=10)
        self.tls = tls
        self.producers = {}
        self.consumers = {}
        self.received = {}
        self.starting = threading.Lock()
        self.stopping = threading.Event()

    def producer(self, topic):
        with self.starting:
            if topic not in self.producers:
                made = Producer(self.configuration, [topic], checker=Checker(), tls_enable=self.tls)
                made.startup()
                self.producers[topic] = made
            return self.producers[topic]

    def open(self, command):
        self.producer(command["topic"])
        return {}

    def messages(self, command):
        for number in range(command["count"]):
            message = Message()
            message.topic = command["topic"]
            message.body = f"{command['prefix']}-{number}{command.get('padding', '')}".encode()
            message.keys = f"{command['prefix']}-key-{number}"
            message.tag = command.get("tag", "TagA")
            message.add_property("colour", "blue")
            message.add_property("number", str(number))
            if command.get("group"):
                message.message_group = command["group"]
            if command.get("deliver_in_ms"):
                message.delivery_timestamp = int(time.time() + command["deliver_in_ms"] / 1000 + 0.999)
            yield message

    def send(self, command):
        producer = self.producer(command["topic"])
        if command.get("execute"):
            return {"results": [self.transact(producer, command, message) for message in self.messages(command)]}
        return {"results": [row(producer.send(message)) for message in self.messages(command)]}

    def transact(self, producer, command, message):
        message.add_property("answer", command.get("answer", "unknown"))
        transaction = producer.begin_transaction()
        receipt = producer.send(message, transaction)
        emit({"event": "executed", "messageId": receipt.message_id})
        if command["execute"] == "halt":
            os._exit(1)
        if command["execute"] == "commit":
            transaction.commit()
        elif command["execute"] == "rollback":
            transaction.rollback()
        return row(receipt)

    def recall(self, command):
        return {"recalled": self.producer(command["topic"]).recall_message(command["topic"], command["handle"])}

    def load(self, command):
        """Send one message after the other, in a thread, until told to stop; each that is acknowledged is an event."""
        producer = self.producer(command["topic"])
        self.stopping.clear()

        def run():
            number = 0
            while not self.stopping.wait(command.get("pause_ms", 10) / 1000):
                one = {**command, "prefix": f"{command['prefix']}{number}", "count": 1}
                number += 1
                try:
                    for message in self.messages(one):
                        producer.send(message)
                        emit({"event": "acked", "body": message.body.decode()})
                except Exception as error:  # noqa: BLE001  (refused, or unknown; the next one is another message)
                    emit({"event": "unacked", "message": str(error)})
                    self.stopping.wait(0.1)
            emit({"event": "unloaded", "sent": number})

        threading.Thread(target=run, daemon=True).start()
        return {}

    def unload(self, command):
        self.stopping.set()
        return {}

    def wanted(self, command):
        expression = FilterExpression(command.get("expression", "*"))
        if command.get("sql"):
            expression = FilterExpression(command["sql"], FilterType.SQL)
        return dict.fromkeys([command["topic"], *command.get("more_topics", [])], expression)

    def subscribe(self, command):
        wanted = self.wanted(command)
        listener = Listener(command)
        made = PushConsumer(self.configuration, command["consumer_group"], listener, wanted, tls_enable=self.tls)
        made.startup()
        self.consumers[command["id"]] = made
        return {}

    def simple(self, command):
        wanted = self.wanted(command)
        group, await_s = command["consumer_group"], command.get("await_s", 5)
        made = SimpleConsumer(self.configuration, group, wanted, await_duration=await_s, tls_enable=self.tls)
        made.startup()
        self.consumers[command["id"]] = made
        return {}

    def receive(self, command):
        found = self.consumers[command["id"]].receive(command.get("count", 16), command["invisible_s"])
        self.received.update({message.message_id: message for message in found})
        return {"messages": [described(message) for message in found]}

    def ack(self, command):
        self.consumers[command["id"]].ack(self.received[command["message"]])
        return {}

    def change(self, command):
        message = self.received[command["message"]]
        self.consumers[command["id"]].change_invisible_duration(message, command["invisible_s"])
        return {}

    def close(self, command):
        self.consumers.pop(command["id"]).shutdown()
        return {}

    def end(self, command):
        self.stopping.set()
        ended = [*self.consumers.values(), *self.producers.values()]
        self.consumers, self.producers, self.received = {}, {}, {}
        threading.Thread(target=lambda: [one.shutdown() for one in ended], daemon=True).start()
        return {}


def row(receipt):
    found = {"messageId": receipt.message_id, "recallHandle": receipt.recall_handle}
    return {**found, "transactionId": receipt.transaction_id}


def main():
    driver = Driver(sys.argv[1], sys.argv[2] == "tls")

    def answer(command):
        try:
            emit({"reply": command["reply"], "ok": True, **getattr(driver, command["op"])(command)})
        except Exception as error:  # noqa: BLE001  (whatever it is, the test is told)
            emit({"reply": command["reply"], "ok": False, "error": type(error).__name__, "message": str(error)})

    pool = ThreadPoolExecutor(8)
    emit({"event": "ready"})
    for line in sys.stdin:
        command = json.loads(line)
        if command["op"] == "quit":
            break
        pool.submit(answer, command)
    ANSWERS.flush()
    os._exit(0)


main()
