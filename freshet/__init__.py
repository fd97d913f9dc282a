"""Freshet from Python: what its users import, re-exported from where it lives, loaded at first use.

The distribution freshet-client has the same package with the clients and their errors alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from freshet.errors import FreshetError, InputError
from freshet.version import __version__

if TYPE_CHECKING:
    from freshet.gnn.own.api import Layer as Layer
    from freshet.gnn.own.api import Max as Max
    from freshet.gnn.own.api import Mean as Mean
    from freshet.gnn.own.api import Redone as Redone
    from freshet.gnn.own.api import Softmax as Softmax
    from freshet.gnn.own.api import Sum as Sum
    from freshet.gnn.own.api import linear as linear
    from freshet.gnn.own.api import relu as relu
    from freshet.gnn.pyg.errors import ExportError as ExportError
    from freshet.gnn.pyg.export import export_model as export_model
    from freshet.gnn.pyg.feature_store import EmbeddingFeatureStore as EmbeddingFeatureStore
    from freshet.gnn.torch_modules.loading import to_torch as to_torch
    from freshet.gnn.torch_modules.module import FreshetModule as FreshetModule
    from freshet.job.history.as_of import as_of as as_of
    from freshet.job.history.changes import read_changes as read_changes
    from freshet.job.history.past_rows import history as history
    from freshet.job.live.live_graph import LiveGraph as LiveGraph
    from freshet.job.python.functions import check as check
    from freshet.job.python.functions import embed as embed
    from freshet.job.python.functions import run as run
    from freshet.job.python.handle import RunHandle as RunHandle
    from freshet.job.serving.clients.async_client import AsyncEmbeddingClient as AsyncEmbeddingClient
    from freshet.job.serving.clients.client import EmbeddingClient as EmbeddingClient
    from freshet.job.serving.protocol.errors import BadRequestError as BadRequestError
    from freshet.job.serving.protocol.errors import ExhaustedError as ExhaustedError
    from freshet.job.serving.protocol.errors import GoneError as GoneError
    from freshet.job.serving.protocol.errors import NotReadyError as NotReadyError
    from freshet.job.serving.protocol.errors import NotYetError as NotYetError
    from freshet.job.serving.protocol.errors import OtherModelError as OtherModelError
    from freshet.job.serving.protocol.errors import TooFarError as TooFarError
    from freshet.job.training.labels import labels as labels
    from freshet.job.training.loader import loader as loader
    from freshet.job.training.sampler import NeighborSampler as NeighborSampler
    from freshet.operators.snapshot.given.write import write_snapshot as write_snapshot

# Lazily: export_model, to_torch and EmbeddingFeatureStore bring torch along, and `import freshet` must work without it.
_HOMES = {
    "AsyncEmbeddingClient": "freshet.job.serving.clients.async_client",
    "BadRequestError": "freshet.job.serving.protocol.errors",
    "EmbeddingClient": "freshet.job.serving.clients.client",
    "EmbeddingFeatureStore": "freshet.gnn.pyg.feature_store",
    "ExhaustedError": "freshet.job.serving.protocol.errors",
    "ExportError": "freshet.gnn.pyg.errors",
    "FreshetModule": "freshet.gnn.torch_modules.module",
    "GoneError": "freshet.job.serving.protocol.errors",
    "Layer": "freshet.gnn.own.api",
    "LiveGraph": "freshet.job.live.live_graph",
    "Max": "freshet.gnn.own.api",
    "Mean": "freshet.gnn.own.api",
    "NeighborSampler": "freshet.job.training.sampler",
    "NotReadyError": "freshet.job.serving.protocol.errors",
    "NotYetError": "freshet.job.serving.protocol.errors",
    "OtherModelError": "freshet.job.serving.protocol.errors",
    "Redone": "freshet.gnn.own.api",
    "RunHandle": "freshet.job.python.handle",
    "Softmax": "freshet.gnn.own.api",
    "Sum": "freshet.gnn.own.api",
    "TooFarError": "freshet.job.serving.protocol.errors",
    "as_of": "freshet.job.history.as_of",
    "check": "freshet.job.python.functions",
    "embed": "freshet.job.python.functions",
    "export_model": "freshet.operators.checks.exporting",
    "history": "freshet.job.history.past_rows",
    "labels": "freshet.job.training.labels",
    "linear": "freshet.gnn.own.api",
    "loader": "freshet.job.training.loader",
    "read_changes": "freshet.job.history.changes",
    "relu": "freshet.gnn.own.api",
    "run": "freshet.job.python.functions",
    "to_torch": "freshet.gnn.torch_modules.loading",
    "write_snapshot": "freshet.operators.snapshot.given.write",
}

__all__ = [
    "AsyncEmbeddingClient",
    "BadRequestError",
    "EmbeddingClient",
    "EmbeddingFeatureStore",
    "ExhaustedError",
    "ExportError",
    "FreshetError",
    "FreshetModule",
    "GoneError",
    "InputError",
    "Layer",
    "LiveGraph",
    "Max",
    "Mean",
    "NeighborSampler",
    "NotReadyError",
    "NotYetError",
    "OtherModelError",
    "Redone",
    "RunHandle",
    "Softmax",
    "Sum",
    "TooFarError",
    "__version__",
    "as_of",
    "check",
    "embed",
    "export_model",
    "history",
    "labels",
    "linear",
    "loader",
    "read_changes",
    "relu",
    "run",
    "to_torch",
    "write_snapshot",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        msg = f"module 'freshet' has no attribute {name!r}; it has {', '.join(__all__)}"
        raise AttributeError(msg)
    try:
        return getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if reason := _reason(error.name or ""):
            msg = f"freshet.{name}: {reason}"
            raise ModuleNotFoundError(msg, name=error.name) from error
        raise


def __dir__() -> list[str]:
    return __all__


def _reason(missing: str) -> str:
    """Return why a module is not installed, and what to do; empty where that is not known."""
    if missing.startswith("freshet."):
        return "is part of freshet-gnn, and here is freshet-client"
    from freshet.extras import EXTRAS, how_to_install

    for extra, packages in EXTRAS.items():
        if missing in packages:
            return f"needs {missing}, which is not installed; {how_to_install(extra)}"
    return ""
