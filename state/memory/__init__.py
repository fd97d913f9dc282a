"""Where the rows of tables lie: memory, and files that are mapped."""
