"""Topics and consumer groups as objects: made so on the brokers of a cluster, and told how they stand."""
