"""Levels, latencies and status of running parts."""
