"""The broker's tables beside its log: topics, consumer groups, offsets, connected clients."""
