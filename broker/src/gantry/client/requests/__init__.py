"""Requests to brokers and name servers, each with the function that reads its answer; no I/O."""
