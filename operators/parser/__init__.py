"""Bytes of messages and files in, validated columnar events and dead letters out."""
