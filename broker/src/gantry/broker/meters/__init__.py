"""What is measured while the broker runs: rates, put times, the lag of the loop, a census of queues and clients."""
