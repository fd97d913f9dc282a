"""Answers of a server to "what if": a job's graph, followed epoch by epoch, and rows after events of a request."""
