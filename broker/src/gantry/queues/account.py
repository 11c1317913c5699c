"""The account: there is one, without anything to set.  Logging buckets are taken and not kept."""

from __future__ import annotations

from gantry.queues import xmlin, xmlout
from gantry.queues.calls import CallAnswer, QueueCall
from gantry.queues.faults import QueueFaultError, malformed


class AccountDoor:
    """The door of /?accountmeta=true, and of the call by which SDKs open the service."""

    async def serve(self, call: QueueCall) -> CallAnswer:
        """Answer one call."""
        if call.path == ("commonbuy", "openservice") and call.method == "POST":
            return CallAnswer(200, xmlout.document("OpenService", xmlout.element("OrderId", "0")))
        if not call.path and call.query.get("accountmeta", "").lower() == "true":
            if call.method == "GET":
                return CallAnswer(200, xmlout.document("Account", xmlout.element("LoggingBucket", "")))
            if call.method == "PUT":
                if call.body and xmlin.read(call.body).name != "Account":
                    raise malformed("the root of the document is not Account")
                return CallAnswer(204)
        text = f"{call.method[:20]} {call.target[:200]} is no call; see /queues, /topics and /?accountmeta=true"
        raise QueueFaultError(405, "MethodNotAllowed", text)
