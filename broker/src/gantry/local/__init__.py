"""A cluster of several processes on one machine: what it consists of, who keeps it running, how it is cut apart."""
