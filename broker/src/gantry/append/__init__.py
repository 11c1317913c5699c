"""How anything gets into the log, and is answered when the promise is kept."""
