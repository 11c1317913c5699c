"""Checking messages, appending them to the log, and answering them when they are confirmed."""
