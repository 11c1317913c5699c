"""The parts of consumers: queues and windows, offsets, rebalancing, queue locks, redelivery."""
