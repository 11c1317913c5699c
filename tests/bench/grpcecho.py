"""A bare server of grpc.aio: every call of /bench.Echo/Echo is answered with two bytes.  What gRPC itself costs.

python grpcecho.py        prints `port N`, and serves until it is ended
"""

from __future__ import annotations

import asyncio

import grpc


async def _echo(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
    return b"ok"


async def main() -> None:
    """Serve on a free port of 127.0.0.1."""
    server = grpc.aio.server()
    method = grpc.unary_unary_rpc_method_handler(_echo)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Echo", {"Echo": method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"port {port}", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
