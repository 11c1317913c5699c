"""The shop: PUT /orders/NUMBER with {"cents": ...} stores an order and sends its message, both or neither.

Any number of these run side by side.  A caller that gets no answer, or 503, asks again with the same number.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import closing
from functools import partial

from aiohttp import web

from gantry.client.producer import Message
from gantry.guarantee.databases import opened
from gantry.guarantee.outbox import Outbox, OutboxSettings

DIALECT, CONNECT = opened(os.environ["DATABASE"])
CENTS_MAX = 10**12


def store(outbox: Outbox, number: int, cents: int) -> bool:
    """Store a new order and its message; False: it is there already."""
    with closing(CONNECT()) as connection, outbox.transaction(connection) as tx, closing(connection.cursor()) as cursor:
        # The lock on the key lets a second attempt wait for the first.
        cursor.execute(
            "INSERT INTO orders (number, cents) SELECT %s, %s FROM (SELECT 1 AS one) x "
            "WHERE NOT EXISTS (SELECT 1 FROM orders WHERE number = %s)",
            (number, cents, number),
        )
        if cursor.rowcount != 1:
            return False
        tx.send(Message("Orders", json.dumps({"number": number, "cents": cents}).encode(), keys=(str(number),)))
        return True


async def put_order(outbox: Outbox, request: web.Request) -> web.Response:
    """Answer 201 for a new order, 200 for a known one, 400 for nonsense, 503 to be asked again."""
    try:
        number = int(request.match_info["number"])
        cents = (await request.json())["cents"]
        if type(cents) is not int or not 0 < cents <= CENTS_MAX or not 0 < number < 2**63:
            raise ValueError("out of range")
    except (ValueError, KeyError, TypeError) as error:
        raise web.HTTPBadRequest(text='PUT /orders/NUMBER with {"cents": above 0}\n') from error
    try:
        is_new = await asyncio.to_thread(store, outbox, number, cents)
    except Exception as error:  # the database is down, or its answer is lost: the same number may be tried again
        raise web.HTTPServiceUnavailable(text=f"{type(error).__name__}, try again\n") from error
    return web.Response(status=201 if is_new else 200)


def main(port: int) -> None:
    """Serve until a signal."""
    settings = OutboxSettings(service="shop", resend_after_s=float(os.environ.get("RESEND_AFTER_S", "60")))
    at = os.environ["NAMESRV_ADDR"]
    with Outbox(DIALECT.name, CONNECT, nameserver=at, group="shop", settings=settings) as outbox:
        app = web.Application(client_max_size=4096)
        app.router.add_put("/orders/{number}", partial(put_order, outbox))
        web.run_app(app, host="127.0.0.1", port=port, print=None)


if __name__ == "__main__":
    main(int(sys.argv[1]))
