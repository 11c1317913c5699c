"""How messages leave the broker: pulls, held pulls and look-ups."""
