"""Reading of model.safetensors: weights into memory, but rows that are looked up by id mapped."""

from __future__ import annotations

import json
import math
import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

_MAPPED = "learned."  # as large as there are ids, and a task reads those of its own vertices alone
_DTYPES: dict[object, np.dtype[Any]] = {"F32": np.dtype("<f4"), "I64": np.dtype("<i8"), "U8": np.dtype("u1")}
_LENGTH_BYTES = 8


def read_weights(path: Path) -> dict[str, NDArray[Any]]:
    """Return the tensors of a file by name; mapped ones are read-only.

    Raises: SafetensorError, OSError where it is none, or damaged.
    """
    with safe_open(path, framework="numpy") as file:
        mapped = _mapped(path) if any(name.startswith(_MAPPED) for name in file.keys()) else {}
        return mapped | {name: file.get_tensor(name) for name in file.keys() if name not in mapped}


def _mapped(path: Path) -> dict[str, NDArray[Any]]:
    """Map those tensors of a file, which `safe_open` has checked, that are to be."""
    with path.open("rb") as file:
        begin = int.from_bytes(file.read(_LENGTH_BYTES), "little") + _LENGTH_BYTES
        header = json.loads(file.read(begin - _LENGTH_BYTES))
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    found = {}
    for name, entry in header.items():
        dtype, shape = _DTYPES.get(entry.get("dtype")), entry.get("shape", ())
        count = math.prod(shape)
        if name.startswith(_MAPPED) and dtype is not None and count:
            values = np.frombuffer(data, dtype, count, offset=begin + entry["data_offsets"][0])
            found[name] = values.reshape(shape)
    return found
