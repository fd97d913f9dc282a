"""Past rows of a job's change log: those of a vertex, and those that held at given times."""
