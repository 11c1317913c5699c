"""The store: one commit log, the queues and the index derived from it, in RocketMQ's files (broker/docs/store.md)."""
