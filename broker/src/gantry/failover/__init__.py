"""Decides which member leads a group. Used by the operator, and by a supervisor on one host."""
