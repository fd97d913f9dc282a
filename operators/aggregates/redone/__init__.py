"""Aggregates that functions of a user make of all messages of a row (RedoneSynopsis)."""
