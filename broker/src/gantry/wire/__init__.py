"""Encoding and decoding without any I/O: commands, request and response codes, JSON bodies, records."""
