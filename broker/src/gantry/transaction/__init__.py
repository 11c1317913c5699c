"""Transactional messages: halves, commit, rollback, check back, and recovery after a crash."""
