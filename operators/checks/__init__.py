"""Checks of what a layer declares: its aggregate by itself, its rows, tiny streams, and proofs."""
