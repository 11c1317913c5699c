"""The only asyncio sockets of the house: connection, server, client, and the HTTP shell for health and metrics."""
