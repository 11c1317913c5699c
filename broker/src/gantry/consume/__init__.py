"""Reading messages: pulls, held pulls, look-ups, and requests about consumers' progress."""
