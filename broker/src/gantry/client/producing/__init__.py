"""What producers are made of: a queue for a message, attempts, and the checks of transactions."""
