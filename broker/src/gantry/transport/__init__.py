"""All of the project's asyncio sockets: connection, server, client, and HTTP for health and metrics; watched tasks."""
