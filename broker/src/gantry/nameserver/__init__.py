"""The name server: which brokers are alive, and which queues of which topics they hold."""
