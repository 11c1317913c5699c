"""What producers ask: runs of messages, batches."""
