"""What one row alone decides: functions and norms, with kernels, full pass and errors, and products of few rows."""
