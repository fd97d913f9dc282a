"""Snapshot folders: whole graphs as Parquet, read and written."""
