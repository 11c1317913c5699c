"""Both of MNS's clients for Python under remote control: JSON commands on stdin, JSON answers on stdout.

The same commands as in the drivers for Node.js and Java.  A refusal is answered with the code that the client made of
it.
One of the clients prints to stdout, so answers leave by a descriptor of their own.
"""

import json
import os
import sys
import time

ANSWERS = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)

from mns.account import Account, AccountMeta  # noqa: E402
from mns.mns_exception import MNSExceptionBase  # noqa: E402
from mns.queue import Message, QueueMeta  # noqa: E402
from mns.subscription import SubscriptionMeta  # noqa: E402
from mns.topic import TopicMessage, TopicMeta  # noqa: E402

ATTRIBUTES = {
    "VisibilityTimeout": "visibility_timeout",
    "MaximumMessageSize": "maximum_message_size",
    "MessageRetentionPeriod": "message_retention_period",
    "DelaySeconds": "delay_seconds",
    "PollingWaitSeconds": "polling_wait_seconds",
    "LoggingEnabled": "logging_enabled",
}
COUNTS = {
    "ActiveMessages": "active_messages",
    "InactiveMessages": "inactive_messages",
    "DelayMessages": "delay_messages",
}

QUIET_S = 60


def queue_meta(attributes):
    meta = QueueMeta()
    for name, value in attributes.items():
        setattr(meta, ATTRIBUTES[name], value)
    return meta


def topic_meta(attributes):
    return TopicMeta(attributes.get("MaximumMessageSize", -1), attributes.get("LoggingEnabled"))


def page(command):
    return command.get("prefix", ""), command.get("count", -1), command.get("marker", "")


def message(command):
    made = Message(command["body"], command.get("delay_s", -1), command.get("priority", -1))
    if command.get("properties"):
        from mns.message_property import MessagePropertyValue, MessageSystemPropertyValue

        make = {"STRING": str, "NUMBER": float, "BOOLEAN": lambda text: text == "true", "BINARY": bytes.fromhex}
        made.message_group_id = command.get("group", "")
        for name, (kind, text) in command["properties"].items():
            made.add_user_property(name, MessagePropertyValue(kind, make[kind](text)))
        made.add_system_property("traceparent", MessageSystemPropertyValue.create_string("00-trace"))
    return made


def described(found):
    body = found.message_body
    return {
        "messageId": found.message_id,
        "md5": found.message_body_md5,
        "body": body.decode() if isinstance(body, bytes) else body,
        "handle": found.receipt_handle,
        "count": found.dequeue_count,
        "priority": found.priority,
        "enqueuedMs": found.enqueue_time,
        "visibleMs": found.next_visible_time,
        "firstMs": found.first_dequeue_time,
        "group": getattr(found, "message_group_id", ""),
        "properties": {
            name: [value.get_data_type(), value.get_string_value_by_type()]
            for kind in ("user_properties", "system_properties")
            for name, value in getattr(found, kind, {}).items()
        },
    }


def sent(found):
    handle = getattr(found, "receipt_handle", "")
    return {"messageId": found.message_id, "md5": found.message_body_md5, "handle": handle}


class Driver:
    def __init__(self, url, user, secret):
        self.account = Account(url, user, secret)

    def queue(self, command):
        found = self.account.get_queue(command["queue"])
        found.set_encoding(not command.get("raw"))
        return found

    def subscription(self, command):
        return self.account.get_topic(command["topic"]).get_subscription(command["subscription"])

    def create_queue(self, command):
        return {"url": self.queue(command).create(queue_meta(command.get("attributes", {})))}

    def set_queue(self, command):
        self.queue(command).set_attributes(queue_meta(command["attributes"]))

    def get_queue(self, command):
        found = self.queue(command).get_attributes()
        names = {**ATTRIBUTES, **COUNTS, "QueueName": "queue_name", "CreateTime": "create_time"}
        return {"attributes": {name: getattr(found, field) for name, field in names.items()}}

    def list_queues(self, command):
        urls, marker = self.account.list_queue(*page(command))
        return {"urls": urls, "marker": marker}

    def delete_queue(self, command):
        self.queue(command).delete()

    def send(self, command):
        return sent(self.queue(command).send_message(message(command)))

    def send_many(self, command):
        found = self.queue(command).batch_send_message([message({**command, "body": one}) for one in command["bodies"]])
        return {"messages": [sent(one) for one in found]}

    def receive(self, command):
        return described(self.queue(command).receive_message(command.get("wait_s", -1)))

    def receive_many(self, command):
        found = self.queue(command).batch_receive_message(command["count"], command.get("wait_s", -1))
        return {"messages": [described(one) for one in found]}

    def peek(self, command):
        return described(self.queue(command).peek_message())

    def peek_many(self, command):
        return {"messages": [described(one) for one in self.queue(command).batch_peek_message(command["count"])]}

    def delete(self, command):
        self.queue(command).delete_message(command["handle"])

    def delete_many(self, command):
        self.queue(command).batch_delete_message(command["handles"])

    def change(self, command):
        found = self.queue(command).change_message_visibility(command["handle"], command["seconds"])
        return {"handle": found.receipt_handle, "visibleMs": int(found.next_visible_time)}

    def create_topic(self, command):
        topic = self.account.get_topic(command["topic"])
        return {"url": topic.create(topic_meta(command.get("attributes", {})))}

    def set_topic(self, command):
        self.account.get_topic(command["topic"]).set_attributes(topic_meta(command["attributes"]))

    def get_topic(self, command):
        found = self.account.get_topic(command["topic"]).get_attributes()
        return {"attributes": {"TopicName": found.topic_name, "MaximumMessageSize": found.maximum_message_size}}

    def list_topics(self, command):
        urls, marker = self.account.list_topic(*page(command))
        return {"urls": urls, "marker": marker}

    def delete_topic(self, command):
        self.account.get_topic(command["topic"]).delete()

    def publish(self, command):
        made = TopicMessage(command["body"], command.get("tag", ""))
        return sent(self.account.get_topic(command["topic"]).publish_message(made))

    def subscribe(self, command):
        endpoint = f"acs:mns:region:account:queues/{command['queue']}"
        kind, tag = command.get("format", "SIMPLIFIED"), command.get("tag", "")
        meta = SubscriptionMeta(endpoint, "EXPONENTIAL_DECAY_RETRY", kind, tag)
        return {"url": self.subscription(command).subscribe(meta)}

    def set_subscription(self, command):
        self.subscription(command).set_attributes(SubscriptionMeta(notify_strategy=command["strategy"]))

    def get_subscription(self, command):
        found = self.subscription(command).get_attributes()
        return {"endpoint": found.endpoint, "strategy": found.notify_strategy, "format": found.notify_content_format}

    def list_subscriptions(self, command):
        urls, marker = self.account.get_topic(command["topic"]).list_subscription()
        return {"urls": urls, "marker": marker}

    def unsubscribe(self, command):
        self.subscription(command).unsubscribe()

    def set_account(self, command):
        self.account.set_attributes(AccountMeta(command["bucket"]))

    def get_account(self, command):
        return {"bucket": self.account.get_attributes().logging_bucket}


def main():
    driver, called_at = Driver(*sys.argv[1:4]), time.monotonic()
    ANSWERS.write(json.dumps({"event": "ready"}) + "\n")
    for line in sys.stdin:
        command = json.loads(line)
        if command["op"] == "quit":
            break
        # Tests of others may lie between two calls.  These clients fail on a connection that the server has closed for
        # its silence, and do not repeat.
        if time.monotonic() - called_at > QUIET_S:
            driver = Driver(*sys.argv[1:4])
        called_at = time.monotonic()
        try:
            answer = {"ok": True, **(getattr(driver, command["op"])(command) or {})}
        except MNSExceptionBase as error:
            answer = {"ok": False, "error": error.type, "message": error.message}
        except Exception as error:  # noqa: BLE001  (whatever it is, the test is told)
            answer = {"ok": False, "error": type(error).__name__, "message": str(error)}
        ANSWERS.write(json.dumps({"reply": command["reply"], **answer}) + "\n")


main()
