"""A stateless HTTP server of queues in the manner of MNS, in front of brokers that it reaches by remoting."""
