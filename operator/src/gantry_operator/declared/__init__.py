"""BrokerTopics and ConsumerGroups: they are applied to the brokers of a cluster, and their status is written."""
