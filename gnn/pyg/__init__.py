"""All that needs torch: export from PyTorch Geometric, import of weights, the second oracle."""
