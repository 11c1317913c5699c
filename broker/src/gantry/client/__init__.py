"""The client: producers, consumers and administration on asyncio, and a small synchronous client without asyncio.

    from gantry.client import Consumer, Message, Producer, TransactionProducer

A name is imported when it is first used, so `import gantry.client` takes less than a millisecond, and the synchronous
client never loads asyncio.  The modules (`gantry.client.producer` and the others) export the same names.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it as true; importing `typing` would take longer than this module
if TYPE_CHECKING:
    from gantry.client.admin import Admin
    from gantry.client.blocking import BlockingProducer, BlockingPuller
    from gantry.client.blockingpop import BlockingSimpleConsumer
    from gantry.client.consumer import Consumer
    from gantry.client.filters import Sql
    from gantry.client.orderly import OrderlyConsumer
    from gantry.client.popped import PoppedMessage
    from gantry.client.producer import Producer
    from gantry.client.pullconsumer import PullConsumer
    from gantry.client.puller import Puller
    from gantry.client.received import ReceivedMessage
    from gantry.client.results import SendResult
    from gantry.client.settings import ConsumerSettings, OrderSettings, ProducerSettings, StartFrom
    from gantry.client.simpleconsumer import SimpleConsumer
    from gantry.client.transaction import Outcome, Rollback, Transaction, TransactionProducer, TransactionSettings
    from gantry.model.message import Message, StoredMessage
    from gantry.model.route import MessageQueue

__all__ = [
    "Admin", "BlockingProducer", "BlockingPuller", "BlockingSimpleConsumer", "Consumer", "ConsumerSettings", "Message",
    "MessageQueue", "OrderSettings", "OrderlyConsumer", "Outcome", "PoppedMessage", "Producer", "ProducerSettings",
    "PullConsumer", "Puller", "ReceivedMessage", "Rollback", "SendResult", "SimpleConsumer", "Sql", "StartFrom",
    "StoredMessage", "Transaction", "TransactionProducer", "TransactionSettings",
]  # fmt: skip

_MODULES = {
    "Admin": "gantry.client.admin",
    "BlockingProducer": "gantry.client.blocking",
    "BlockingPuller": "gantry.client.blocking",
    "BlockingSimpleConsumer": "gantry.client.blockingpop",
    "Consumer": "gantry.client.consumer",
    "ConsumerSettings": "gantry.client.settings",
    "Message": "gantry.model.message",
    "MessageQueue": "gantry.model.route",
    "OrderSettings": "gantry.client.settings",
    "OrderlyConsumer": "gantry.client.orderly",
    "Outcome": "gantry.client.transaction",
    "PoppedMessage": "gantry.client.popped",
    "Producer": "gantry.client.producer",
    "ProducerSettings": "gantry.client.settings",
    "PullConsumer": "gantry.client.pullconsumer",
    "Puller": "gantry.client.puller",
    "ReceivedMessage": "gantry.client.received",
    "Rollback": "gantry.client.transaction",
    "SendResult": "gantry.client.results",
    "SimpleConsumer": "gantry.client.simpleconsumer",
    "Sql": "gantry.client.filters",
    "StartFrom": "gantry.client.settings",
    "StoredMessage": "gantry.model.message",
    "Transaction": "gantry.client.transaction",
    "TransactionProducer": "gantry.client.transaction",
    "TransactionSettings": "gantry.client.transaction",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used (PEP 562)."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    found: object = getattr(importlib.import_module(module), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Return every public name, also those that were not used yet."""
    return sorted({*globals(), *__all__})
