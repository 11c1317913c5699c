"""The client: producer, consumers and administration on asyncio, and a small blocking one without it."""
