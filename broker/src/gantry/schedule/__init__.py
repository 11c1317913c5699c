"""Delayed messages: by level, by time, and recalling them."""
