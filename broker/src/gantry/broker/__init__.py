"""The broker as a process: configuration, one table of requests, periodic jobs, and the wiring of all that lies below."""
