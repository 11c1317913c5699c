"""What the gRPC proxy and the HTTP queues share: the way to brokers, and texts that clients keep and bring back."""
