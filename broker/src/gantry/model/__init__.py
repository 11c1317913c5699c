"""The values everybody speaks of: messages, names, topics, subscriptions, routes."""
