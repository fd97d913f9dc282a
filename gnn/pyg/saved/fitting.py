"""Brings the names of saved weights to those of the module that gets them: without wrappers, and of PyG today."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from freshet.gnn.pyg.errors import refuse
from freshet.gnn.pyg.saved.old_names import with_new_names
from freshet.gnn.pyg.saved.weights import Weights
from freshet.gnn.pyg.steps import ExportError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

State = dict[str, Any]

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
    from torch.nn.parameter import is_lazy

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
