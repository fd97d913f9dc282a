"""All that needs torch: export from PyTorch Geometric, import of weights, the second oracle."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    # Its pooling calls torch.jit.script where it is imported; nothing here does, and no user can change that.
    warnings.filterwarnings("ignore", r"`torch\.jit\.script` is deprecated", FutureWarning)
    try:
        import torch_geometric  # noqa: F401
    except ImportError:
        pass  # who calls for torch says what is missing (freshet.extras.need)
