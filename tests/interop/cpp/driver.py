"""The C++ client through its Python wrappers, under remote control: JSON commands on stdin, JSON answers on stdout.

Runs inside a virtual environment of its own with either PyPI `rocketmq` 0.4.4 (core 2.1.8, sends by request 10) or
`rocketmq-client-python` 2.0.0 with the 2.1.11 library laid beside it (sends by request 310).  Both call themselves
`rocketmq`; the second is known by ConsumeStatus.  The core prints on stdout what it likes and may die by SIGSEGV while
it shuts down, so answers are written through a descriptor of our own and nobody judges the exit status.
"""

import json
import os
import sys
import threading

ANSWERS = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)

from rocketmq import client  # noqa: E402  (after stdout has been taken away from the library)

OLD = not hasattr(client, "ConsumeStatus")
ROUTES_ASKED_MAX = 10


def emit(line):
    ANSWERS.write(json.dumps(line) + "\n")


def text(value):
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


class Driver:
    def __init__(self, name_server):
        self.name_server = name_server
        self.producers = {}
        self.consumers = {}
        self.stopping = threading.Event()

    def point(self, what):
        setter = what.set_namesrv_addr if OLD else what.set_name_server_address
        setter(self.name_server)

    def producer(self, group, orderly=False):
        if group not in self.producers:
            made = client.Producer(group) if OLD else client.Producer(group, orderly=orderly)
            self.point(made)
            made.set_timeout(5000)
            made.start()
            self.producers[group] = made
        return self.producers[group]

    def transactional(self, group):
        """Only 2.1.11: the properties say what the local transaction and the checker answer, as with Java's driver."""
        if group not in self.producers:
            states = client.TransactionStatus

            def checked(message):
                emit({"event": "checked", "keys": text(message.keys), "topic": message.topic})
                return states[text(message.get_property("answer")).upper()]

            made = client.TransactionMQProducer(group, checked)
            self.point(made)
            made.start()
            self.producers[group] = made
        return self.producers[group]

    def send_transaction(self, command):
        producer = self.transactional(command["group"])
        execute, results = command.get("execute", "commit"), []

        def executed(message, arguments):
            emit({"event": "executed", "keys": text(message.keys), "topic": message.topic})
            if execute == "halt":
                os._exit(1)
            return client.TransactionStatus[execute.upper()]

        for message in self.messages(command):
            message.set_property("answer", command.get("answer", "commit"))
            results.append(producer.send_message_in_transaction(message, executed))
        return results

    def open(self, command):
        self.transactional(command["group"])
        return {}

    def messages(self, command):
        for number in range(command["count"]):
            message = client.Message(command["topic"])
            message.set_keys("{}-key-{}".format(command["prefix"], number))
            message.set_tags(command.get("tag", "TagA"))
            message.set_body("{}-{}{}".format(command["prefix"], number, command.get("padding", "")))
            message.set_property("colour", "blue")
            if command.get("delay_level"):
                message.set_delay_time_level(command["delay_level"])
            yield message

    def send(self, command):
        kind = command.get("kind", "sync")
        if kind == "transaction":
            return self.rows(self.send_transaction(command))
        producer = self.producer(command["group"], orderly=kind == "sharding")
        results = []
        if kind == "batch":
            results.append(producer.send_batch(list(self.messages(command))))
        else:
            for message in self.messages(command):
                if kind == "oneway":
                    producer.send_oneway(message)
                elif kind == "orderly":
                    results.append(producer.send_orderly(message, command.get("queue", 0)))
                elif kind == "sharding":
                    results.append(producer.send_orderly_with_sharding_key(message, "shard"))
                else:
                    results.append(self.routed(producer.send_sync, message))
        return self.rows(results)

    def routed(self, send, message):
        """Send it; again where no route came, for this client asks for one once, with its own short time limit."""
        for _ in range(ROUTES_ASKED_MAX):
            try:
                return send(message)
            except Exception as error:  # of different kinds in the two versions
                if "No route info" not in str(error):
                    raise
        return send(message)

    def rows(self, results):
        return {"results": [{"status": r.status.name, "msgId": r.msg_id, "queueOffset": r.offset} for r in results]}

    def load(self, command):
        """Send one message after the other, in a thread, until told to stop; each SEND_OK is an event."""
        producer = self.producer(command["group"])

        def run():
            number = 0
            while not self.stopping.is_set():
                body = "{}-{}".format(command["prefix"], number)
                message = client.Message(command["topic"])
                message.set_body(body)
                number += 1
                try:
                    result = producer.send_sync(message)
                except Exception:  # noqa: BLE001  (refused, or unknown; the next one is another message)
                    self.stopping.wait(0.1)
                    continue
                if result.status.name in ("OK", "SEND_OK"):
                    emit({"event": "acked", "body": body, "queueOffset": result.offset})
                self.stopping.wait(command.get("pause", 10) / 1000)
            emit({"event": "unloaded", "sent": number})

        threading.Thread(target=run, daemon=True).start()
        return {}

    def unload(self, command):
        self.stopping.set()
        return {}

    def subscribe(self, command):
        consumer = client.PushConsumer(command["group"], orderly=bool(command.get("orderly")))
        self.point(consumer)
        consumer.set_instance_name(command["id"])
        consumer.set_thread_count(1)

        def received(message):
            event = {"event": "message", "consumer": command["id"], "topic": message.topic, "msgId": message.id}
            event.update(keys=text(message.keys), tags=text(message.tags), body=text(message.body))
            event.update(queueId=message.queue_id, queueOffset=message.queue_offset, times=message.reconsume_times)
            event["colour"] = text(message.get_property("colour"))
            emit(event)
            if OLD:
                return command["refused"] if command.get("fail") else None  # a KeyError is its way to say "later"
            status = client.ConsumeStatus
            fails = command.get("fail") or message.reconsume_times < command.get("fail_times", 0)
            return status.RECONSUME_LATER if fails else status.CONSUME_SUCCESS

        consumer.subscribe(command["topic"], received, command.get("expression", "*"))
        consumer.start()
        self.consumers[command["id"]] = consumer
        return {}

    def pull(self, command):
        """Only 0.4.4 has a pull consumer: everything from the first offset of each queue."""
        consumer = client.PullConsumer(command["group"])
        self.point(consumer)
        consumer.start()
        bodies = [text(message.body) for message in consumer.pull(command["topic"])]
        self.consumers[command["group"]] = consumer
        return {"bodies": bodies}

    def close(self, command):
        self.consumers[command["id"]].shutdown()
        return {}

    def answer(self, command):
        try:
            fields = getattr(self, command["op"])(command)
            emit(dict(fields, reply=command["reply"], ok=True))
        except Exception as error:  # noqa: BLE001  (the test is the judge)
            emit({"reply": command["reply"], "ok": False, "error": type(error).__name__, "message": str(error)})


def main():
    driver = Driver(sys.argv[1])
    emit({"event": "ready"})
    for line in sys.stdin:
        command = json.loads(line)
        if command["op"] == "quit":
            break
        driver.answer(command)
    os._exit(0)


main()
