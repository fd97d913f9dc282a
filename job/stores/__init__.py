"""Stores of objects, such as S3, that hold checkpoints: Flink's plugin for them, and what Python reads there."""
