"""Servers for development and tests: a broker, a cluster of processes. Nothing of the product imports it."""
