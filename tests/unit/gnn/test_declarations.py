"""Each declaration documents its options and weights; that of a conv also formula, shapes, errors and source."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, get_args

import pytest

from freshet.gnn.declarations import AnyConv, AnyDense, AnyJump, Conv, Layer

CONVS, OTHERS = get_args(AnyConv), (*get_args(AnyDense), *get_args(AnyJump))
LINEAR = {"type": "linear", "in_channels": 8, "out_channels": 8}
SIZES: dict[str, Any] = {"in_channels": 8, "out_channels": 8, "heads": 2, "nn": [LINEAR], "hidden_channels": 4}
SIZES |= {"edge_channels": 4}
SIZES |= {"aggregators": ["max"], "post": [LINEAR], "pre": [LINEAR], "project": True, "residual": True, "beta": True}
CHAIN = re.compile(r"\.\d+\.(weight|bias)$")  # a layer of a chain that the declaration was given


def sections(kind: type[Layer]) -> dict[str, str]:
    """The docstring by its sections, and what comes before them as ""."""
    parts = re.split(r"\n\n?    (Args|Weights|Shapes|Raises|Source):", kind.__doc__ or "")
    return {"": parts[0]} | dict(zip(parts[1::2], parts[2::2], strict=True))


def undocumented(kind: type[Layer], weights: Iterable[str]) -> list[str]:
    """Options and weights that the docstring does not have, and options that it has alone."""
    found = sections(kind)
    options = {name for name in kind.model_fields if name != "type"}
    told = set(re.findall(r"^        (\w+): \S", found.get("Args", ""), re.MULTILINE))
    names = [re.sub(r"^program\.\d+\.value$", "value", name) for name in weights]
    names = [re.sub(r"^(pre|post)\.\d+\.", r"\1.t.", name) for name in names]
    lacking = [name for name in names if not re.search(rf"\b{re.escape(name)}\b", found.get("Weights", ""))]
    return [*sorted(options ^ told), *(name for name in lacking if not CHAIN.search(name))]


@pytest.mark.parametrize("kind", CONVS, ids=lambda kind: kind.__name__)
def test_a_conv_is_documented_whole(kind: type[Conv]) -> None:
    found, given = sections(kind), {name: value for name, value in SIZES.items() if name in kind.model_fields}
    if kind.__name__ == "AGNNConv":
        given["heads"] = 1
    if kind.__name__ == "FiLMConv":
        given["in_channels"] = 3 * given["out_channels"]
    if kind.__name__ == "EdgeConv":
        given["nn"] = [LINEAR | {"in_channels": 16}]
    if kind.__name__ == "NNConv":
        given["nn"] = [LINEAR | {"in_channels": 4, "out_channels": 64}]
    if kind.__name__ == "MessageConv":
        program = [{"op": "rows", "of": ["source"], "layer": LINEAR}, {"op": "constant", "of": [], "width": 8}]
        given |= {"heads": 1, "edge_channels": 0, "program": [*program, {"op": "add", "of": ["0", "1"]}]}
    if kind.__name__ == "OwnLayer":
        given |= {"code": "mine.layers:Mine", "source": "0" * 64}
    if kind.__name__ == "GMMConv":
        given["kernels"] = 2
    assert list(found) == ["", "Args", "Weights", "Shapes", "Raises", "Source"]
    assert undocumented(kind, kind.model_validate(given).tensors()) == []
    assert found[""].startswith("x_v' = ")
    assert "(n, in_channels) float32" in found["Shapes"]


@pytest.mark.parametrize("kind", OTHERS, ids=lambda kind: kind.__name__)
def test_a_layer_of_rows_has_its_options_and_weights(kind: type[Layer]) -> None:
    given = {"in_channels": 4, "out_channels": 4, "channels": 4, "eps": 1e-5, "of": "layer_norm", "name": "a"}
    given |= {"of": ["."]} if kind.__name__ == "Join" else {}
    assert len(OTHERS) > 20
    layer = kind.model_validate({name: value for name, value in given.items() if name in kind.model_fields})
    assert undocumented(kind, layer.tensors()) == []
