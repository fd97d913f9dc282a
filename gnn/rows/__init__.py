"""Layers of one row alone: functions and norms, with their kernels, their full pass and the scale of their errors."""
