"""The docstring of each conv's declaration has its formula, options, weights, shapes, errors and source."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest

from freshet.gnn.declarations import AnyConv, Conv

CONVS = get_args(AnyConv)
LINEAR = {"type": "linear", "in_channels": 8, "out_channels": 8}
SIZES: dict[str, Any] = {"in_channels": 8, "out_channels": 8, "heads": 2, "nn": [LINEAR], "hidden_channels": 4}
SIZES |= {"aggregators": ["max"], "post": [LINEAR], "pre": [LINEAR], "project": True, "residual": True, "beta": True}
CHAIN = re.compile(r"\.\d+\.(weight|bias)$")  # a layer of a chain that the declaration was given


def lacks(kind: type[Conv]) -> list[str]:
    """What the docstring of a declaration does not have."""
    doc = kind.__doc__ or ""
    parts = re.split(r"\n\n?    (Args|Weights|Shapes|Raises|Source):", doc)
    found = dict(zip(parts[1::2], parts[2::2], strict=True))
    lacking = [name for name in ("Args", "Weights", "Shapes", "Raises", "Source") if name not in found]
    if lacking:
        return lacking
    options = [name for name in kind.model_fields if name != "type"]
    lacking += [name for name in options if not re.search(rf"^        {name}: \S", found["Args"], re.MULTILINE)]
    lacking += [name for name in re.findall(r"^        (\w+): ", found["Args"], re.MULTILINE) if name not in options]
    given = {name: value for name, value in SIZES.items() if name in options}
    if kind.__name__ == "AGNNConv":
        given["heads"] = 1
    if kind.__name__ == "EdgeConv":
        given["nn"] = [LINEAR | {"in_channels": 16}]
    for name in kind.model_validate(given).tensors():
        general = re.sub(r"^(pre|post)\.\d+\.", r"\1.t.", name)
        if not CHAIN.search(general) and not re.search(rf"\b{re.escape(general)}\b", found["Weights"]):
            lacking.append(name)
    if not doc.startswith("x_v' = ") or "(n, in_channels) float32" not in found["Shapes"]:
        lacking.append("formula or shapes")
    return lacking


@pytest.mark.parametrize("kind", CONVS, ids=lambda kind: kind.__name__)
def test_a_conv_is_documented_whole(kind: type[Conv]) -> None:
    assert len(CONVS) >= 15
    assert lacks(kind) == []
