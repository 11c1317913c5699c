"""The broker as a process: configuration, one table of requests, periodic jobs, and the wiring of what lies below."""
