"""Connections to name servers and brokers, routes, and which member of a group is asked."""
