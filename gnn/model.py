"""A model: its layers in order and their weights, and the folder that keeps them (model.json, model.safetensors)."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)
from safetensors import SafetensorError
from safetensors.numpy import save

from freshet.edge_categories import MOST_CATEGORIES
from freshet.errors import InputError
from freshet.gnn.answers import LayerAnswers
from freshet.gnn.declarations import CONV_TYPES, DENSE_TYPES, JUMP_TYPES, AnyLayer, Conv, DenseLayer, Shape
from freshet.gnn.limits import MAX_CONVS
from freshet.gnn.link_head import LinkHead
from freshet.gnn.rows.chains import chain_tensors, chain_width
from freshet.gnn.rows.jumps import Join
from freshet.gnn.weights_file import read_weights
from freshet.schema import Features

VERSION = 1
KINDS_VERSION: Final = 2  # of models with kinds of vertices or relations (gnn/kinds)
SPEC_FILE = "model.json"
WEIGHTS_FILE = "model.safetensors"
ANSWERS_FILE = "module_answers.safetensors"  # gnn/module_answers.py


_LATER = ("edge_features", "link_head", "type_columns", "edge_categories")

Made = TypeVar("Made", bound="WeightedModel")


class ModelError(InputError, ValueError):
    """A model that cannot be read or makes no sense; the message says which part and what was expected."""


class WeightedModel(BaseModel):
    """Base of what a model folder keeps: a declaration, and float32 weights by name, which are no part of its JSON.

    Neither is part of the model's identity: `checks`, what export found about the layers (`freshet layer check`); and
    `module_answers`, tensors of what a module with messages of a user's made of some graphs (gnn/module_answers.py),
    which loading leaves out.
    """

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    weights: dict[str, NDArray[Any]] = Field(exclude=True, repr=False)
    checks: list[LayerAnswers] = Field(default_factory=list, exclude=True, repr=False)
    module_answers: dict[str, NDArray[Any]] = Field(default_factory=dict, exclude=True, repr=False)

    @field_validator("weights", mode="before")
    @classmethod
    def _as_kept(cls, weights: dict[str, Any]) -> dict[str, NDArray[Any]]:
        return {name: cls.kept_as(name, np.asarray(weights[name])) for name in sorted(weights)}

    @classmethod
    def kept_as(cls, name: str, given: NDArray[Any]) -> NDArray[Any]:
        """Return a weight in the type that it is kept in.

        Raises: ValueError for one that is not of numbers, or holds one that the type does not.
        """
        return _in_float32(name, given)

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of all weights."""
        raise NotImplementedError

    def check_weights(self) -> None:
        """Refuse weights that are missing or unknown, or have another shape than declared.

        Raises: ValueError
        """
        expected = self.tensors()
        missing, unknown = sorted(expected.keys() - self.weights), sorted(self.weights.keys() - expected)
        if missing or unknown:
            msg = f"weights: missing {missing or 'none'}, unknown {unknown or 'none'}"
            raise ValueError(msg)
        for name, shape in expected.items():
            if self.weights[name].shape != shape:
                msg = f"weight {name}: got shape {self.weights[name].shape}, expected {shape}"
                raise ValueError(msg)

    def weights_of(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Return the weights under `prefix.`, by the rest of their names."""
        start = prefix + "."
        return {name[len(start) :]: w for name, w in self.weights.items() if name.startswith(start)}

    def declaration(self) -> dict[str, Any]:
        """Return what model.json holds, but for the checks."""
        return self.model_dump(mode="json")

    def identity(self) -> dict[str, Any]:
        """Return what the hash is of, besides the weights."""
        return self.declaration()

    def sha256(self) -> str:
        """Return the identity of the model: a hash of its layers and weights, however the files are laid out."""
        digest = hashlib.sha256(json.dumps(self.identity(), sort_keys=True).encode())
        for name in sorted(self.weights):
            weight = self.weights[name]
            digest.update(f"{name}{weight.shape}".encode())
            digest.update(np.ascontiguousarray(weight, weight.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data)
        return digest.hexdigest()


class Model(WeightedModel):
    """The layers of a trained GNN in order, with their weights.

    Weights are float32, named `layers.<index>.<tensor>`, `head.<index>.<tensor>` and `link_head.<index>.<tensor>`.
    Invariant: widths chain from layer to layer, 1 to MAX_CONVS convs, every weight there with its shape (checked here).
    """

    version: int = VERSION
    layers: list[AnyLayer]
    head: list[DenseLayer] = []
    edge_types: list[str] = []
    edge_features: Annotated[int, Field(ge=0)] = 0
    link_head: LinkHead | None = None
    type_columns: bool = False
    """True if the attributes of an edge begin with its type, one-hot over `edge_types`."""
    edge_categories: list[Annotated[int, Field(ge=0, le=MOST_CATEGORIES)]] = []
    """Of each attribute of an edge, how many categories it numbers, 0 where it is any number; empty: all are any."""

    @model_serializer(mode="wrap")
    def _as_before(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what is empty of what came later: models of before it was there keep their identity."""
        fields: dict[str, Any] = serialize(self)
        return {name: value for name, value in fields.items() if name not in _LATER or value}

    @field_validator("edge_types")
    @classmethod
    def _types_distinct(cls, names: list[str]) -> list[str]:
        if len(set(names)) != len(names) or "" in names:
            msg = f"edge_types: got {names}, expected distinct, non-empty names"
            raise ValueError(msg)
        return names

    @model_validator(mode="after")
    def _fits(self) -> Model:
        convs = [layer for layer in self.layers if isinstance(layer, Conv)]
        if not 1 <= len(convs) <= MAX_CONVS:
            msg = f"a model needs 1 to {MAX_CONVS} convs, got {len(convs)}"
            raise ValueError(msg)
        chain_width(self.head, self.out_width, "head")
        _check_first_width(self.layers)
        _check_edge_widths(convs, self.edge_features)
        if self.type_columns and not 0 < len(self.edge_types) <= self.edge_features:
            msg = f"type_columns: got {len(self.edge_types)} edge_types for edge_features of {self.edge_features}"
            raise ValueError(msg)
        if self.edge_categories and (self.type_columns or len(self.edge_categories) != self.edge_features):
            msg = f"edge_categories: got {len(self.edge_categories)} for edge_features of {self.edge_features}"
            raise ValueError(msg)
        _check_ends(self.layers)
        if self.link_head is not None:
            self.link_head.check(self.out_width, self.out_width, "link_head")
        self.check_weights()
        return self

    @property
    def features(self) -> Features:
        """The raw features that it reads."""
        for layer in self.layers:
            if layer.in_width is not None:
                types = len(self.edge_types) if self.type_columns else 0
                return Features(layer.in_width, self.edge_features, None, types, tuple(self.edge_categories))
        msg = "no layer has a width"
        raise ValueError(msg)

    @property
    def out_width(self) -> int:
        """Width of the embedding."""
        return chain_width(self.layers, self.features.width, "layers")

    @property
    def is_approximate(self) -> bool:
        """True if a layer replaces one that reads the whole graph, by constants from the time of the export."""
        inner = [one for layer in self.layers for one in getattr(layer, "nn", ())]
        return any(layer.is_approximate for layer in (*self.layers, *inner, *self.head))

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of all weights."""
        of_pairs = {} if self.link_head is None else self.link_head.tensors("link_head")
        return chain_tensors(self.layers, "layers") | chain_tensors(self.head, "head") | of_pairs


def build_model(**fields: Any) -> Model:
    """Return the Model of these fields.

    Raises: ModelError naming the field, what it got and what was expected.
    """
    version = fields.get("version", VERSION)
    if version != VERSION:
        msg = f"model format version {version!r}: this Freshet reads version {VERSION}, and version {KINDS_VERSION} of "
        raise ModelError(msg + "models with kinds")
    check_types(fields.get("layers"), "layers", CONV_TYPES + DENSE_TYPES + JUMP_TYPES)
    check_types(fields.get("head", []), "head", DENSE_TYPES)
    return validated(Model, fields)


def validated(of: type[Made], fields: dict[str, Any]) -> Made:
    """Return the model of that class.

    Raises: ModelError naming the field, what it got and what was expected.
    """
    try:
        return of(**fields)
    except ValidationError as error:
        raise ModelError(explain(error)) from None


def load_model(folder: str | Path) -> Model:
    """Read the folder of a model without kinds.

    Raises: ModelError when a file is missing, is no model, or does not fit the other; the message says what to mend.
    """
    return read_folder(folder, _build_without_kinds)


def _build_without_kinds(**fields: Any) -> Model:
    """Return the model of these fields, as `build_model`."""
    if fields.get("version") == KINDS_VERSION:
        msg = "a model with kinds of vertices; freshet.gnn.kinds.model.load_any_model reads it"
        raise ModelError(msg)
    return build_model(**fields)


def read_folder(folder: str | Path, build: Callable[..., Made]) -> Made:
    """Read a model folder; `build` makes the model of its fields and weights.

    Raises: ModelError when a file is missing, is no model, or does not fit the other; the message says what to mend.
    """
    folder = Path(folder)
    spec_path, weights_path = folder / SPEC_FILE, folder / WEIGHTS_FILE
    for path in (spec_path, weights_path):
        if not path.is_file():
            msg = f"{folder} is no model folder: {path.name} is missing (freshet.export_model writes both files)"
            raise ModelError(msg)
    try:
        spec = json.loads(spec_path.read_bytes())
    except OSError as error:
        msg = f"{spec_path} cannot be read: {error.strerror}"
        raise ModelError(msg) from None
    except (ValueError, RecursionError) as error:
        msg = f"{spec_path} is not JSON: {'it is nested too deeply' if isinstance(error, RecursionError) else error}"
        raise ModelError(msg) from None
    if not isinstance(spec, dict) or {"weights", "module_answers"} & spec.keys():
        msg = f"{spec_path}: got {type(spec).__name__}, expected an object with version, layers, head and edge_types"
        raise ModelError(msg)
    try:
        weights = read_weights(weights_path)
    except (SafetensorError, OSError) as error:
        msg = f"{weights_path} is not a safetensors file: {error}"
        raise ModelError(msg) from None
    try:
        return build(**spec, weights=weights)
    except ModelError as error:
        blamed = weights_path if str(error).startswith("weights: ") else spec_path
        msg = f"{blamed}: {error}"
        raise ModelError(msg) from None


def save_model(model: WeightedModel, folder: str | Path) -> None:
    """Write a model folder; both files are whole before one appears."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    checks = {"checks": [one.as_json() for one in model.checks]} if model.checks else {}
    spec = (json.dumps(model.declaration() | checks, indent=2) + "\n").encode()
    files = {WEIGHTS_FILE: save(model.weights), SPEC_FILE: spec}
    if model.module_answers:
        files[ANSWERS_FILE] = save(model.module_answers)
    partial = {name: _partial(folder / name, data) for name, data in files.items()}
    if not model.module_answers:
        (folder / ANSWERS_FILE).unlink(missing_ok=True)  # of another model
    for name, file in partial.items():
        os.replace(file, folder / name)


def _in_float32(name: str, given: NDArray[Any]) -> NDArray[np.float32]:
    """Return a weight as float32.

    Raises: ValueError for one that is not of numbers, or holds one that float32 does not.
    """
    if given.dtype.kind not in "fiu":
        msg = f"{name}: got {given.dtype}, expected numbers"
        raise ValueError(msg)
    with np.errstate(over="ignore"):
        made = np.asarray(given, np.float32, order="C")
    if wrong := int(np.count_nonzero(~np.isfinite(made))):
        what = "past float32" if np.isfinite(given).all() else "NaN or infinite"
        msg = f"{name}: {wrong} of {made.size} values are {what}; export the model again, without such weights"
        raise ValueError(msg)
    return made


def _check_first_width(layers: list[AnyLayer]) -> None:
    """Refuse a `cat` in front of the first layer that has a width: the features' width would not be known."""
    for i, layer in enumerate(layers):
        if layer.in_width is not None:
            return
        if isinstance(layer, Join) and layer.operation == "cat" and len(layer.of) > 1:
            msg = f"layers.{i}: rows are put side by side before any layer says how wide they are"
            raise ValueError(msg)


def _check_edge_widths(convs: Sequence[Conv], width: int) -> None:
    """Refuse attributes of edges that are not those of the model, or that no layer reads."""
    for conv in convs:
        if conv.edge.attributes not in (0, width):
            kind = type(conv).model_fields["type"].default
            msg = f"edge_features: got {width}, but {kind} reads attributes of width {conv.edge.attributes}"
            raise ValueError(msg)
    if width and not any(conv.edge.attributes for conv in convs):
        msg = f"edge_features: got {width}, but no layer reads attributes of edges"
        raise ValueError(msg)


def _check_ends(layers: Sequence[AnyLayer]) -> None:
    """Refuse a conv made for two kinds of rows."""
    for i, layer in enumerate(layers):
        for name, off in (("target_channels", None), ("mixed_heads", False), ("update", None)):
            if getattr(layer, name, off) != off:
                msg = f"layers.{i}: {name} is for the convs of relations, in a model with kinds"
                raise ValueError(msg)


def _partial(path: Path, data: bytes) -> Path:
    """Write what a file is to have beside it, and return where."""
    partial = path.with_name("." + path.name)
    partial.write_bytes(data)
    return partial


def check_types(layers: Any, where: str, supported: tuple[str, ...]) -> None:
    """Name an unknown layer type, which pydantic would bury in a list of all unions.

    Raises: ModelError
    """
    if not isinstance(layers, list):
        msg = f"{where}: got {type(layers).__name__}, expected a list of layers"
        raise ModelError(msg)
    for i, layer in enumerate(layers):
        kind = layer.get("type") if isinstance(layer, dict) else getattr(layer, "type", None)
        if not isinstance(kind, str):
            got = "no type" if kind is None else f"a type that is a {type(kind).__name__}"
            msg = f"{where}.{i}: got {got}, expected an object with a type, one of {', '.join(supported)}"
            raise ModelError(msg)
        if kind not in supported:
            msg = f"{where}.{i}: layer type {kind!r} is not supported; supported are {', '.join(supported)}"
            raise ModelError(msg)
        if kind in ("gin_conv", "gine_conv", "edge_conv", "nn_conv", "gen_conv") and isinstance(layer, dict):
            check_types(layer.get("nn"), f"{where}.{i}.nn", DENSE_TYPES)


def explain(error: ValueError) -> str:
    """Return on one line which fields of a declaration are wrong, and what they got; of another error its message."""
    if not isinstance(error, ValidationError):
        return str(error)
    parts = []
    for item in error.errors(include_url=False, include_context=False, include_input=True):
        where = ".".join(str(step) for step in item["loc"])
        message = item["msg"].removeprefix("Value error, ")
        got = item["input"]
        shown = f" (got {got!r})" if isinstance(got, str | int | float | bool | None) else ""
        parts.append(f"{where}: {message}{shown}" if where else message)
    return "; ".join(parts)
