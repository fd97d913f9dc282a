"""Topics: addresses, clients, plans, Flink's source and sink, and `freshet produce`."""
