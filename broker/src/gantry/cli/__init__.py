"""The `gantry` command: one module per group of commands, each loaded only when it is called."""
