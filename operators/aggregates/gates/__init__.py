"""Sums of gated messages."""
