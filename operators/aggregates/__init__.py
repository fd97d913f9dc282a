"""Aggregates that a Storage keeps of a layer's messages: one room for each kind."""
