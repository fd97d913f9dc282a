"""Softmax sums of scored messages."""
