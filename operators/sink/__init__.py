"""Outputs of a part: the change log, its reader, and the lines of an output topic."""
