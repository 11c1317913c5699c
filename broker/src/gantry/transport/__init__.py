"""All of the project's asyncio sockets: connection, server, client, and the HTTP server for health and metrics."""
