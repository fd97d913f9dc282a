"""Layers that read one row: functions and norms, with kernels, full pass and errors, and products of few rows."""
