"""Ready-made jobs with source and sink: each has a pure `build(df) -> df`, and a `main` for `python -m`."""
