"""Transactional messages: half, commit, rollback, check back, and what survives what."""
