"""Runs GantryMQ on Kubernetes; `gantry_operator.main` is where it begins."""
