"""Products and functions of rows."""
