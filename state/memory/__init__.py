"""Memory of the rows of tables: arrays, and mapped files."""
