"""The operator that runs GantryMQ on Kubernetes; the program is `gantry_operator.main`."""
