"""What people write: the kinds of gantrymq.io, as values and as definitions for the API server."""
