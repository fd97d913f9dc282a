"""Rows of what has not happened: events are applied to the graph of a job, rows are computed, and all is undone."""
