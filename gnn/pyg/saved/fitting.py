"""Brings the names of saved weights to those of the module that gets them: without wrappers, and of PyG today."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy

from freshet.gnn.pyg.errors import refuse
from freshet.gnn.pyg.saved.loading import Weights
from freshet.gnn.pyg.steps import ExportError, class_name

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


_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
# What wraps a model as a whole, so that what stands beside it, such as a loss with weights, is no part of it.
_WHOLE = {"module", "model", "net", "network", "gnn", "encoder", "enc", "backbone"}
_SHOWN = 4


class _Fit(NamedTuple):
    """Weights without a prefix, with the names of today, and what then does not fit."""

    prefix: str
    state: State
    renamed: list[str]
    beside: list[str]
    missing: list[str]
    unexpected: list[str]
    shapes: list[str]

    @property
    def wrong(self) -> int:
        return len(self.missing) + len(self.unexpected) + len(self.shapes)


def load_into(module: Module, weights: Weights, source: str, say: Callable[[str], None]) -> None:
    """Load saved weights into a module, and return the names that were changed for this.

    Raises: ExportError naming what is missing, unexpected or of another shape.
    """
    state, expected = _unwrapped(weights.state, module), module.state_dict()
    fits = [_fit(module, expected, state, prefix) for prefix in _prefixes(state)]
    best = _best(source, fits, of_lightning=weights.of_lightning)
    if best.wrong:
        raise ExportError(_why_not(source, best))
    for note in _notes(weights, state, best):
        say(f"{source}: {note}")
    try:
        module.load_state_dict(best.state, strict=False)
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines()]
        msg = f"{source} does not fit the module. {' '.join(lines[: _SHOWN + 1])}"
        raise ExportError(msg) from None


def _unwrapped(state: Mapping[str, Any], module: Module) -> State:
    """Weights without the names that torch.compile and the like put between a module and its parts."""
    there = {part for name, _ in module.named_modules() for part in name.split(".")}
    taken_off = {*_WRAPPERS} - there
    return {".".join(part for part in name.split(".") if part not in taken_off): value for name, value in state.items()}


def _prefixes(state: State) -> list[str]:
    """All beginnings of names, the empty one first, then the short ones."""
    found = {""}
    for name in state:
        parts = name.split(".")
        found |= {".".join(parts[:end]) + "." for end in range(1, len(parts))}
    return sorted(found, key=lambda prefix: (prefix.count("."), prefix))


def _fit(module: Module, expected: Mapping[str, Tensor], state: State, prefix: str) -> _Fit:
    inside = {name[len(prefix) :]: value for name, value in state.items() if name.startswith(prefix)}
    beside = [name for name in state if not name.startswith(prefix)]
    inside, renamed = with_new_names(module, inside)
    missing = [name for name in expected if name not in inside and not name.endswith("num_batches_tracked")]
    shapes = [
        f"{name} {tuple(inside[name].shape)}, expected {tuple(value.shape)}"
        for name, value in expected.items()
        if name in inside and not _is_lazy(value) and inside[name].shape != value.shape
    ]
    return _Fit(prefix, inside, renamed, beside, missing, [name for name in inside if name not in expected], shapes)


def _is_lazy(value: Tensor) -> bool:
    return bool(is_lazy(value))


def _best(source: str, fits: list[_Fit], *, of_lightning: bool) -> _Fit:
    """The prefix to take off: none where all fits, else the one below which all is that the module has.

    Raises: ExportError where there are several.
    """
    good = [one for one in fits if not one.wrong]
    whole = [one for one in good if not one.prefix or not one.beside]
    partly = [one for one in good if of_lightning or set(one.prefix.split(".")[:-1]) <= _WHOLE]
    found = whole[:1] or partly
    if len(found) > 1:
        names = " and ".join(repr(one.prefix) for one in found)
        refuse(f"{source}: weights that fit the module stand under {names}; save those that are meant alone")
    if found:
        return found[0]
    closest = min(fits, key=lambda one: (one.wrong + len(one.beside), len(one.prefix)))
    if good:
        refuse(
            f"{source}: what stands under {good[0].prefix!r} would fit the module, but there is more beside it: "
            f"{_listed(good[0].beside)}. Give the factory of the whole module, or save that part alone"
        )
    return closest


def _why_not(source: str, fit: _Fit) -> str:
    parts = {"Missing keys": fit.missing, "Unexpected keys": fit.unexpected, "Other shapes": fit.shapes}
    wrong = [f"{what}: {_listed(names)}" for what, names in parts.items() if names]
    prefix = f" (its names without {fit.prefix!r})" if fit.prefix else ""
    renamed = f". Names of an earlier PyG were taken as {_listed(fit.renamed)}" if fit.renamed else ""
    return (
        f"{source} does not fit the module{prefix}. {'. '.join(wrong)}{renamed}. Expected the weights of what the "
        "factory makes, with the same arguments as in training"
    )


def _notes(weights: Weights, state: State, fit: _Fit) -> Iterable[str]:
    """Return notes on a file whose weights were found, but not by their names."""
    if weights.key:
        yield f"the weights are those under {weights.key!r}"
    wrappers = sorted({part for name in weights.state for part in name.split(".") if part in _WRAPPERS})
    if set(weights.state) != set(state):
        yield f"took {', '.join(f'{one}.' for one in wrappers)} off the names of weights"
    if fit.prefix:
        yield f"took {fit.prefix} off the names of weights"
    if fit.beside:
        yield f"left out what is not under {fit.prefix}: {_listed(fit.beside)}"
    if fit.renamed:
        yield f"names of an earlier PyG: {_listed(fit.renamed)}"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"
