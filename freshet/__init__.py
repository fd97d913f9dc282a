"""Freshet from Python: what its users import, re-exported from where it lives, loaded at first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from freshet.errors import FreshetError, InputError

if TYPE_CHECKING:
    from freshet.gnn.declarations import Layer as Layer
    from freshet.gnn.pyg.errors import ExportError as ExportError
    from freshet.gnn.pyg.export import export_model as export_model
    from freshet.gnn.pyg.feature_store import EmbeddingFeatureStore as EmbeddingFeatureStore
    from freshet.job.serving.clients.async_client import AsyncEmbeddingClient as AsyncEmbeddingClient
    from freshet.job.serving.clients.client import EmbeddingClient as EmbeddingClient

__version__ = "0.1.0"

# Lazily: export_model and EmbeddingFeatureStore bring torch along, and `import freshet` must work without it.
_HOMES = {
    "AsyncEmbeddingClient": "freshet.job.serving.clients.async_client",
    "EmbeddingClient": "freshet.job.serving.clients.client",
    "EmbeddingFeatureStore": "freshet.gnn.pyg.feature_store",
    "ExportError": "freshet.gnn.pyg.errors",
    "Layer": "freshet.gnn.declarations",
    "export_model": "freshet.gnn.pyg.export",
}

__all__ = [
    "AsyncEmbeddingClient",
    "EmbeddingClient",
    "EmbeddingFeatureStore",
    "ExportError",
    "FreshetError",
    "InputError",
    "Layer",
    "__version__",
    "export_model",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        msg = f"module 'freshet' has no attribute {name!r}; it has {', '.join(__all__)}"
        raise AttributeError(msg)
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
