"""What if, of a server: a job's graph, followed epoch by epoch, and rows as they would be after events of a request."""
