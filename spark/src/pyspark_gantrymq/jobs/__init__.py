"""Finished jobs over source and sink: each a pure `build(df) -> df`, and a `main` for `python -m` or spark-submit."""
