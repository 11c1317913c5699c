"""The broker's configuration: its keys, where values come from, rules between keys, and what may change as it runs."""
