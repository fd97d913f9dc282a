"""Arrow as foreign writers give it: Parquet files, IPC messages and their bounds, and arrays of the usual types."""
