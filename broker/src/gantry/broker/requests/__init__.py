"""Which request goes where, how large it may be, and what only a working master does."""
