"""What /metrics says: one table of families and its rows, theme by theme."""
