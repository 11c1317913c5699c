"""Replication of a group of one master and its slaves: copies, acknowledgements, the in-sync set and the confirmed
offset.
"""
