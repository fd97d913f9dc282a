"""Snapshots from what people have in Python: data of PyTorch Geometric, frames of pandas and polars, Arrow tables."""
