"""The values that all packages share: messages, names, topics, subscriptions, routes."""
