"""Names that weights of PyG's convs had in earlier versions, and what they are called today.

Source: torch_geometric 1.4.3, 1.5.0, 1.7.2, 2.0.4 (nn/conv), against 2.8.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from freshet.gnn.pyg.steps import class_name

if TYPE_CHECKING:
    from torch.nn import Module

State = dict[str, Any]
Renamed = list[str]


def with_new_names(module: Module, state: State) -> tuple[State, Renamed]:
    """Return weights with the names that the convs of a module have today, and what was renamed."""
    state, renamed = dict(state), Renamed()
    for path, conv in module.named_modules():
        make = _CONVS.get(class_name(conv).removeprefix("torch_geometric.nn."))
        if make is not None:
            make(_Conv(f"{path}." if path else "", conv, state, renamed))
    return state, renamed


class _Conv:
    """The weights of one conv, by their names in it."""

    def __init__(self, prefix: str, module: Any, state: State, renamed: Renamed) -> None:
        self.prefix, self.module, self._state, self._renamed = prefix, module, state, renamed

    def get(self, name: str) -> Any:
        return self._state.get(self.prefix + name)

    def put(self, old: str, new: str, value: Any = None, how: str = "") -> None:
        """Give a weight its new name, and another value where it is kept in another form."""
        if self.get(old) is None or self.get(new) is not None:
            return
        self._state[self.prefix + new] = self.get(old) if value is None else value
        self._renamed.append(f"{self.prefix}{old} is {new} now{how}")
        self.drop(old)

    def drop(self, name: str) -> None:
        self._state.pop(self.prefix + name, None)

    def transpose(self, old: str, new: str) -> None:
        """Give a matrix that multiplied rows from the right its new name and form."""
        value = self.get(old)
        if value is not None and value.ndim == 2:
            self.put(old, new, value.t().contiguous(), ", transposed")


def _weight_of_lin(conv: _Conv) -> None:
    conv.transpose("weight", "lin.weight")


def _gat_conv(conv: _Conv) -> None:
    _weight_of_lin(conv)
    for one, other in (("lin_src", "lin_dst"), ("lin_l", "lin_r")):
        own, same = conv.get(f"{one}.weight"), conv.get(f"{other}.weight")
        if own is None or (same is not None and not same.equal(own)):
            continue  # of a bipartite conv, which there is none of here
        conv.put(f"{one}.weight", "lin.weight")
        conv.drop(f"{other}.weight")
    for old, new in (("att_l", "att_src"), ("att_r", "att_dst"), ("att_j", "att_src"), ("att_i", "att_dst")):
        conv.put(old, new)
    both = conv.get("att")
    if both is not None and both.ndim == 3 and both.shape[-1] % 2 == 0:
        half = both.shape[-1] // 2
        conv.put("att", "att_src", both[..., half:].contiguous(), ", its second half")
        conv._state[conv.prefix + "att"] = both
        conv.put("att", "att_dst", both[..., :half].contiguous(), ", its first half")


def _moved(*names: tuple[str, str]) -> Callable[[_Conv], None]:
    def move(conv: _Conv) -> None:
        for old, new in names:
            for end in ("weight", "bias"):
                conv.put(f"{old}.{end}", f"{new}.{end}")

    return move


def _tag_conv(conv: _Conv) -> None:
    weight, lins = conv.get("lin.weight"), conv.module.lins
    if weight is None or weight.ndim != 2 or weight.shape[1] % len(lins):
        return
    for k, part in enumerate(weight.chunk(len(lins), dim=1)):
        conv._state[conv.prefix + "lin.weight"] = weight
        conv.put("lin.weight", f"lins.{k}.weight", part.contiguous(), f", its part {k}")
    conv.put("lin.bias", "bias")


_CONVS: dict[str, Callable[[_Conv], None]] = {
    "GCNConv": _weight_of_lin,
    "SuperGATConv": _weight_of_lin,
    "GATConv": _gat_conv,
    "GraphConv": _moved(("lin_l", "lin_rel"), ("lin_r", "lin_root")),
    "SAGEConv": _moved(("lin_rel", "lin_l"), ("lin_root", "lin_r")),
    "TAGConv": _tag_conv,
}
