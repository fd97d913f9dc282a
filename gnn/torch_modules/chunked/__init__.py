"""A pass over a whole graph in chunks of vertices that fit the memory of a device."""
