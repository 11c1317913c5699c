"""POP consumption: the broker leases messages to a group's members, one by one, instead of giving them queues."""
