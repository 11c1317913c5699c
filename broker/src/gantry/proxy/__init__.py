"""A stateless server of RocketMQ 5's gRPC protocol, in front of brokers that it reaches by remoting."""
