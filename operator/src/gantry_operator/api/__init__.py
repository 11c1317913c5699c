"""The kinds of gantrymq.io that users write, as values and as definitions for the API server."""
