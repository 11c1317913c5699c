"""Finished jobs over the source: each a pure `build(df) -> df`, and a `main` for `python -m` or spark-submit."""
