"""The requests of producers: runs of messages, batches, replies."""
