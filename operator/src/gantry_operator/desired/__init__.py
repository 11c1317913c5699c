"""The objects that a cluster should have: pure functions from a specification to documents."""
