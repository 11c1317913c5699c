"""Requests to brokers and name servers, each with the way to read its answer; no input or output."""
