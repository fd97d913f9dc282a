"""Life cycle of a job: whether it runs, and how it has ended."""
