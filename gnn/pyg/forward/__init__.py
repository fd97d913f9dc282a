"""Conversion of a module's forward to steps: traced, opened down to layers, and brought into a line."""
