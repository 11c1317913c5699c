"""The name server: which brokers live and where the queues of each topic are."""
