"""Connections to name servers and brokers, routes, and the choice between a group's members."""
