"""Plays small jobs of every shape in plain Python, and tells which kernels they call: `python -m operators.rehearsal`.

What is noted is what `freshet warm-up` compiles, so whatever decides the types that a kernel gets must differ between
these jobs: kinds of ids, one part or several in a task, weights, a base image, a topic, every activation.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from gnn.declarations import AnyLayer, chain_tensors
from gnn.kernel_calls import encode, noted_calls
from gnn.model import build_model, save_model
from operators.base_image import build_image
from operators.factory import load_plan, make_outlet
from operators.settings import OutletConfig, Settings
from operators.sink.string_ids import FIRST_ROWS, Names
from operators.warm_up import take_events, throwaway_events
from partitioner.config import PartitionerConfig
from partitioner.hash_index import FIRST_CAPACITY, grown, make_index
from state.salt import scratch_salt
from state.table import TableSet

_WIDTH = 3
_ACTIVATIONS: tuple[dict[str, Any], ...] = (
    {"type": "leaky_relu"},
    {"type": "prelu", "channels": 1},
    {"type": "elu"},
    {"type": "selu"},
    {"type": "gelu"},
    {"type": "gelu", "approximate": "tanh"},
    {"type": "tanh"},
    {"type": "sigmoid"},
    {"type": "silu"},
)


def _conv(kind: str, **options: Any) -> dict[str, Any]:
    return {"type": kind, "in_channels": _WIDTH, "out_channels": _WIDTH, **options}


_RELU = {"type": "relu"}
# Between them: sums with weights and without, own inputs and none, sums and means, rows of length 1.
_MODELS: tuple[list[dict[str, Any]], ...] = (
    [_RELU, _conv("graph_conv"), *_ACTIVATIONS, _conv("sage_conv", normalize=True), _RELU, _conv("gin_conv", nn=[])],
    [_conv("gcn_conv"), _RELU, _conv("sage_conv"), _RELU, _conv("graph_conv", aggr="mean", edge_weights=False)],
)


# Kind of ids, and how many parts each task of a Storage has.
_SHAPES = (("int", (1,)), ("string", (2, 1)), ("int", (2,)), ("string", (1, 1)))


def save_models(folder: Path) -> list[Path]:
    """Write the models that the jobs run."""
    found = []
    for number, layers in enumerate(_MODELS):
        declared: list[Any] = TypeAdapter(list[AnyLayer]).validate_python(layers)
        shapes = chain_tensors(declared, "layers")
        weights = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
        save_model(build_model(layers=layers, head=[], edge_types=[], weights=weights), folder / str(number))
        found.append(folder / str(number))
    return found


def jobs(folder: Path) -> Iterator[Settings]:
    """Settings of jobs that between them have every shape; their files lie in `folder`."""
    models = save_models(folder / "models")
    for number, (kind, tasks) in enumerate(_SHAPES):
        out = folder / str(number)
        yield Settings(
            model=str(models[number % len(models)]),
            out=str(out),
            image=str(out / "image"),
            parts=sum(tasks),
            tasks=tasks,
            sources=("events",),
            partitioning=PartitionerConfig(id_kind=kind, hybrid_threshold=1),
            outlet=OutletConfig(model_tag="0" * 16),
        )


def play(settings: Settings) -> None:
    """A base image of some events, then epochs upon it and upon nothing, with all that a job's stages do."""
    plan = load_plan(settings.model)
    plan.warm_up()
    make_outlet(settings, plan, 0).warm_up()
    settings = replace(settings, outlet=None)  # what goes to a topic leaves the network
    build_image(settings, [throwaway_events(settings, plan).slice(0, 6)])
    for image in (settings.image, ""):
        take_events(replace(settings, image=image), plan, sinks=True)


def grow() -> None:
    """Have tables grow that small jobs do not fill."""
    grown(make_index(scratch_salt()), FIRST_CAPACITY)
    Names(TableSet())._rehash(2 * FIRST_ROWS)


def main() -> None:
    """Print the calls, one encoded call a line."""
    np.seterr(all="ignore")  # compiled kernels let integers overflow in silence
    with tempfile.TemporaryDirectory() as folder:
        for settings in jobs(Path(folder)):
            play(settings)
        grow()
    for call in noted_calls():
        sys.stdout.buffer.write(encode(call))


if __name__ == "__main__":
    main()
