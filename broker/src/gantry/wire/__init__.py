"""Bytes to values and back, sans-IO: what a command says, which codes exist, how bodies and records read."""
