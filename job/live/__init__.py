"""The graph of a job at an epoch, as arrays and for PyTorch Geometric, read beside the job or after it."""
