"""GantryMQ: a message broker that speaks RocketMQ's protocols and keeps its file formats."""
