"""What the broker knows beside its log: topics, groups, offsets and who is connected."""
