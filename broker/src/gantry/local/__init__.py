"""A cluster of several processes on one machine: its layout, its supervisor, and simulated network failures."""
