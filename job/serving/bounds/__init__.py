"""Bounds of a server's memory for requests and answers: a budget, sizes computed in advance, parts."""
