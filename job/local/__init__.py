"""The local runtime: the whole job in one process."""
