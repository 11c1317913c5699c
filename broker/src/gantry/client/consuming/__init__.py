"""What consumers are made of: queues and windows, offsets, shares of a group, locks, redelivery."""
