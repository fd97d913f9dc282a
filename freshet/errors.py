"""The errors that users see: the root of them, and all others by name, each loaded from where it is raised."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

_OPTION = re.compile(r"(?:^|: )(--[a-z][a-z0-9-]*|-D)(?![\w-])")


class FreshetError(Exception):
    """An error for users: the value found, the value expected, and what to do."""

    named: str | None = None  # the option at fault, where the message does not begin with it

    @property
    def option(self) -> str | None:
        """The option that is at fault, such as `--parts`, or the parameter of a function; None where none is."""
        if self.named is not None:
            return self.named
        found = _OPTION.search(str(self).partition("\n")[0])
        return None if found is None else found[1]


class InputError(FreshetError):
    """Unusable input: an option, a file, a model or a state (exit code 2 of a command)."""


# The modules of all others, by name; freshet-client has those of the clients alone.
HOMES = {
    "ArtifactError": "freshet.job.machine.artifacts",
    "BadRequestError": "freshet.job.serving.protocol.errors",
    "BudgetError": "freshet.operators.embed.memory_plan",
    "CheckFailedError": "freshet.job.python.errors",
    "DamagedFileError": "freshet.files.json_file",
    "DeviceMemoryError": "freshet.gnn.torch_modules.chunked.device",
    "DifferingLayerError": "freshet.gnn.pyg.errors",
    "EmbedError": "freshet.operators.embed.files",
    "EventFileError": "freshet.operators.parser.partitions",
    "ExhaustedError": "freshet.job.serving.protocol.errors",
    "ExportError": "freshet.gnn.pyg.errors",
    "FlinkRestError": "freshet.job.flink.rest",
    "ForeignLogError": "freshet.operators.epochs.cut_segments",
    "ForeignStateError": "freshet.operators.epochs.cut",
    "FormError": "freshet.job.serving.bounds.forms",
    "GatewayError": "freshet.job.flink.gateway",
    "GoneError": "freshet.job.serving.protocol.errors",
    "HistoryTooShortError": "freshet.state.served.mapped",
    "HttpError": "freshet.job.serving.doors.refusals",
    "JavaNotFoundError": "freshet.job.machine.java",
    "JobFailed": "freshet.job.errors",
    "JobFailedError": "freshet.job.python.errors",
    "JobTimeoutError": "freshet.job.python.errors",
    "KindChoiceError": "freshet.job.folder.returned_kinds",
    "KindsError": "freshet.kinds",
    "LayersError": "freshet.gnn.own.loading",
    "LostCutError": "freshet.operators.epochs.cut",
    "LostValueError": "freshet.state.rocks_backend",
    "MissingExtraError": "freshet.extras",
    "MissingFileError": "freshet.operators.initial.artifacts",
    "MissingVertexError": "freshet.gnn.pyg.feature_store",
    "ModelError": "freshet.gnn.model",
    "ModuleInputError": "freshet.gnn.torch_modules.errors",
    "NoBucketError": "freshet.job.stores.object_store",
    "NoChangeLogError": "freshet.operators.sink.change_log_reader",
    "NoJobError": "freshet.job.serving.view.job_here",
    "NoTopicError": "freshet.job.serving.feeds.topic_reader",
    "NotOverError": "freshet.job.flink.job_run",
    "NotReadyError": "freshet.job.serving.protocol.errors",
    "NotYetError": "freshet.job.serving.protocol.errors",
    "NothingToStopError": "freshet.job.run.stop",
    "OtherModelError": "freshet.job.serving.protocol.errors",
    "ProcessorError": "freshet.kernels.processor",
    "RankFailedError": "freshet.job.training.ranks.launch",
    "RefutedLayerError": "freshet.operators.checks.exporting",
    "RegistryError": "freshet.operators.parser.registry.schema_registry",
    "RegistryRefusalError": "freshet.operators.parser.registry.schema_registry",
    "SnapshotError": "freshet.operators.snapshot.reader",
    "StoreError": "freshet.job.stores.object_store",
    "SwapFailed": "freshet.job.swap.commands",
    "TokenError": "freshet.job.serving.protocol.token_values",
    "TooFarError": "freshet.job.serving.protocol.errors",
    "TooSlowError": "freshet.job.serving.protocol.errors",
    "UnevenPartsError": "freshet.state.sweep",
    "UnknownFormatError": "freshet.state.codec",
    "UnknownJobError": "freshet.job.flink.rest",
    "UnknownOptionError": "freshet.job.python.errors",
    "UnknownVertexError": "freshet.job.serving.protocol.errors",
    "UnsupportedModelError": "freshet.operators.embed.engine",
    "UsageError": "freshet.job.errors",
    "WriterGoneError": "freshet.state.served.mapped",
    "WrittenLayerError": "freshet.gnn.own.running",
}


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        msg = f"module 'freshet.errors' has no attribute {name!r}; it has {', '.join(__dir__())}"
        raise AttributeError(msg)
    try:
        return getattr(import_module(HOMES[name]), name)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("freshet."):
            raise
        msg = f"freshet.errors.{name} is part of freshet-gnn, and here is freshet-client"
        raise AttributeError(msg) from None


def __dir__() -> list[str]:
    return ["FreshetError", "InputError", *HOMES]
