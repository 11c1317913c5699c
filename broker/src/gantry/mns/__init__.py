"""A client for HTTP queues in the manner of MNS (SMQ), and transaction queues on top of them; needs the extra `mns`."""
