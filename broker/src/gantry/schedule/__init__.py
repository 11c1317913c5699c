"""Messages that are delivered later: levels, any time, and taking them back."""
