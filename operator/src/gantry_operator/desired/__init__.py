"""What should be there for a cluster: pure builders from a specification to objects."""
