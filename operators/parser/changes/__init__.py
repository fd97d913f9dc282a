"""Changes of tables as records: what is true in them, and whether an old row was sent."""
