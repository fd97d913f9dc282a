"""A module as its classes have it: what was hung on it, or put in a method's place, may do anything, and is refused.

Hooks, methods set on an instance, methods of PyG's or torch's classes that were replaced, explanations. Weights that
are made of others (weight_norm, spectral_norm, pruning) are made once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import torch
from torch.nn import Module
from torch.nn.utils import parametrize
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from freshet.gnn.pyg.errors import ExportError, refuse
from freshet.gnn.pyg.running import copy_of
from freshet.gnn.pyg.steps import class_name

_LIBRARIES = ("torch", "torch_geometric")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")  # PyG's own end so, too: _message_forward_hooks and others
# What a class of torch.nn.Module's own may have replaced without a change of what it gives.
_CALLS = ("__call__", "_call_impl", "_wrapped_call_impl", "__getattr__")
# What a subclass may have of its own without giving other rows.
_HARMLESS = {
    *("__init__", "__repr__", "__str__", "__doc__", "__module__", "__annotations__", "__dict__", "__weakref__"),
    *("__qualname__", "__static_attributes__", "__firstlineno__", "__parameters__", "__orig_bases__", "__hash__"),
    *("reset_parameters", "extra_repr", "init_conv", "inference", "train", "eval", "device", "training_step"),
    *("validation_step", "test_step", "configure_optimizers", "loss", "recommend", "predict_link"),
    *("recommendation_loss", "link_pred_loss"),
}


def plain_copy(module: Module) -> Module:
    """Return a copy in eval mode of a module that is nothing but its classes and its weights.

    Raises: ExportError naming what else it is.
    """
    for name, part in module.named_modules():
        _refuse_dgl(name or type(module).__name__, part)
        _refuse_compiled(name or type(module).__name__, part)
        _refuse_hooks(name or type(module).__name__, part)
        _refuse_patches(name or type(module).__name__, part)
    _refuse_global_hooks()
    plain = copy_of(module)
    for part in list(plain.modules()):
        _make_weights(part)
    return plain


def is_plain(module: Any, base: type) -> bool:
    """Return whether a module is of a class of PyG's, or a subclass that overrides nothing of it."""
    if not isinstance(module, base):
        return False
    own = [kind for kind in type(module).__mro__ if not _is_library(kind.__module__) and kind is not object]
    names = {name for kind in own for name in vars(kind)} - _HARMLESS
    return not any(hasattr(base, name) for name in names)


def _refuse_dgl(name: str, part: Module) -> None:
    """Refuse a module of DGL.

    Raises: ExportError
    """
    if type(part).__module__.startswith("dgl."):
        msg = (
            f"{name}: {class_name(part)} is a module of DGL, and Freshet exports those of PyTorch Geometric: copy its "
        )
        raise ExportError(msg + "weights to the layer there that does the same, as docs/guide/from_dgl.md shows")


def _refuse_compiled(name: str, part: Module) -> None:
    """Refuse what has no Python code, or no values.

    Raises: ExportError
    """
    if isinstance(part, torch.jit.ScriptModule):
        refuse(f"{name} was made by torch.jit, whose code is not looked into: export the module that it was made of")
    if class_name(part) == "torch._dynamo.eval_frame.OptimizedModule":
        refuse(f"{name} was made by torch.compile: put its ._orig_mod in its place")
    for weight, value in part.named_parameters(recurse=False):
        if value.device.type == "meta":
            refuse(f"{name}: {weight} is on the device 'meta', where it has no values: load the weights first")


def _refuse_hooks(name: str, part: Module) -> None:
    for kind, hooks in vars(part).items():
        if not kind.endswith(_HOOKS) or not isinstance(hooks, dict):
            continue
        for hook in hooks.values():
            if not _is_lazy(hook, part) and not _makes_weights(hook):
                what = kind.strip("_").replace("_", " ")
                refuse(
                    f"{name}: {class_name(part)} has {what} ({_named(hook)}), which may change what it gives: "
                    "remove it before the export (handle.remove()), and write what it does into forward"
                )
    if getattr(part, "_explain", None):
        refuse(f"{name}: {class_name(part)} has explain=True, which masks its messages: set explain to None first")


def _refuse_global_hooks() -> None:
    """Refuse hooks on all modules.

    Raises: ExportError
    """
    for hooks in ("_global_forward_hooks", "_global_forward_pre_hooks"):
        for hook in getattr(torch.nn.modules.module, hooks).values():
            refuse(
                f"a hook on all modules ({_named(hook)}, torch.nn.modules.module.register_module{hooks[7:-1]}) may "
                "change what they give: remove it before the export (handle.remove())"
            )


def _refuse_patches(name: str, part: Module) -> None:
    """Refuse methods that stand on an instance, or in the place of PyG's and torch's. One's own classes are traced.

    Raises: ExportError naming the method.
    """
    kind = type(part)
    if not _is_library(kind.__module__) or isinstance(part, torch.fx.GraphModule):
        return
    set_here = [key for key, value in vars(part).items() if callable(value) and not _is_of(value, part)]
    patched = [key for key in set_here if hasattr(kind, key) and key != "_compiled_call_impl"]
    patched += _replaced(kind)
    if patched:
        refuse(
            f"{name}: {class_name(part)}.{patched[0]} was replaced by a function of one's own, which may give "
            "anything: export the class as it is, or write what the function does into forward"
        )


def _is_of(method: Any, part: Module) -> bool:
    """Return whether it is a method of a module's own class, which PyG sets on instances with decomposed_layers.

    So is a forward that PyG has made for this Sequential: its class has that of the last one that was made.
    """
    if not isinstance(method, MethodType) or method.__self__ is not part:
        return False
    function, home = method.__func__, str(method.__func__.__module__)
    if class_name(part) == "torch_geometric.nn.Sequential" and home.startswith(f"{type(part).__module__}_"):
        return getattr(sys.modules.get(home), "forward", None) is function
    return any(function is one for kind in type(part).__mro__ for one in vars(kind).values())


def _replaced(kind: type) -> list[str]:
    """The methods of a class of torch's or PyG's that come from elsewhere."""
    found: list[str] = []
    for one in kind.__mro__:
        if not _is_library(one.__module__):
            continue
        for name, value in vars(one).items():
            if isinstance(value, FunctionType) and (one is not torch.nn.Module or name in _CALLS):
                found += [] if _is_librarys(value) else [name]
    return found


def _is_librarys(function: FunctionType) -> bool:
    """Return whether a method is torch's or PyG's own; wrapped functions do not show what it does."""
    if not _is_library(str(function.__module__)):
        return False
    if not hasattr(function, "__wrapped__"):
        return True
    file = Path(function.__code__.co_filename)
    homes = (Path(str(sys.modules[one].__file__)).parent for one in _LIBRARIES)
    return file.name == "contextlib.py" or any(file.is_relative_to(home) for home in homes)


def _is_library(module: str) -> bool:
    return module.split(".")[0] in _LIBRARIES


def _is_lazy(hook: Any, part: Module) -> bool:
    """Return whether a hook only waits for the first rows, to size the module by them."""
    return isinstance(hook, MethodType) and hook.__self__ is part and _is_library(str(hook.__func__.__module__))


def _makes_weights(hook: Any) -> bool:
    return type(hook) in (WeightNorm, SpectralNorm) or isinstance(hook, BasePruningMethod)


def _make_weights(part: Module) -> None:
    """Have weights that are made of others at every call as they are now."""
    if parametrize.is_parametrized(part):
        kind = type(part)  # which the module has as well, and which the following changes
        own = {name: value for name, value in vars(kind).items() if name not in ("__dict__", "__weakref__")}
        part.__class__ = type(kind.__name__, kind.__bases__, own)
        for name in list(part.parametrizations):
            parametrize.remove_parametrizations(part, name, leave_parametrized=True)
    for key, hook in list(part._forward_pre_hooks.items()):
        if _makes_weights(hook):
            hook.remove(part)
            del part._forward_pre_hooks[key]


def _named(hook: Any) -> str:
    named = getattr(hook, "__qualname__", None) or type(hook).__qualname__
    return str(named)
