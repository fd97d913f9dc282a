"""What waits, how long things take and what a part says of itself while it runs."""
