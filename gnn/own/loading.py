"""The modules of written layers that this process has: loaded by name, or brought with a job.

A model folder has no code: an entry names the class and the SHA-256 of its module's source, and here is what that
name stands for.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from threading import RLock
from types import ModuleType
from typing import NamedTuple

from freshet.errors import InputError
from freshet.gnn.own.layer import WrittenLayer
from freshet.gnn.own.shipped import SHIPPED
from freshet.gnn.own.sources import own_imports, reached


class Loaded(NamedTuple):
    """The source of a module of written layers, or of one that it imports, and the module where it was imported."""

    source: str
    module: ModuleType | None = None


LOADED: dict[str, Loaded] = {}
"""The modules of this process, by name."""
_one_at_a_time = RLock()


class LayersError(InputError, ValueError):
    """A class of a written layer that is not there, or has another source; the message says what to do."""


def load_layers(names: Sequence[str]) -> None:
    """Import modules of written layers, from the folder of the process, too, and note their sources.

    So are those of modules of the user's that these import: their functions are part of the layer.

    Raises: LayersError for one that cannot be imported, or has no source.
    """
    for name in names:
        if name in LOADED and LOADED[name].module is not None:
            continue
        if (here := os.getcwd()) not in sys.path:
            sys.path.append(here)
        try:
            spec = find_spec(name)
            module = import_module(name)
        except (Exception, SystemExit) as error:
            msg = f"--layers {name}: it cannot be imported ({type(error).__name__}: {error}); expected the name of a "
            msg += "module, PACKAGE.MODULE, that Python finds here"
            if name.endswith(".py"):
                msg += f", such as {name.removesuffix('.py').strip('./').replace('/', '.')}"
            raise LayersError(msg) from error
        get = getattr(None if spec is None else spec.loader, "get_source", None)
        source = None if get is None else get(name)
        if source is None:
            msg = f"--layers {name}: it has no source; expected a module of Python"
            raise LayersError(msg)
        for other, text in own_imports(name, source).items():
            LOADED.setdefault(other, Loaded(text))
        LOADED[name] = Loaded(source, module)


def loaded_sources() -> dict[str, str]:
    """Return the sources of the modules that were loaded, and of those of the user's that they import, by name."""
    return {name: one.source for name, one in LOADED.items()}


def loaded_modules() -> dict[str, ModuleType]:
    """Return the modules of written layers of this process, by name."""
    return {name: one.module for name, one in LOADED.items() if one.module is not None}


def install_layers(sources: Mapping[str, str]) -> None:
    """Have modules of these sources, as another process has loaded them.

    Raises: LayersError where the process has another source of one.
    """
    for name, source in sources.items():
        if name not in LOADED:
            SHIPPED.add(name, source)
            LOADED[name] = Loaded(source)
        elif LOADED[name].source != source:
            msg = f"{name}: this process has loaded another source of it; start a new process"
            raise LayersError(msg)


def sha256_of(source: str) -> str:
    """Return the identity of a source."""
    return hashlib.sha256(source.encode()).hexdigest()


def identity_of(name: str) -> str:
    """Return the identity of a loaded module: of its source, and of the modules of the user's that it imports."""
    sources = loaded_sources()
    names = reached(name, sources)
    if names == [name]:
        return sha256_of(sources[name])
    return sha256_of("".join(f"{one} {sha256_of(sources[one])}\n" for one in names))


def split_name(name: str) -> tuple[str, str]:
    """Return the module and the class of PACKAGE.MODULE:CLASS."""
    module, _, kind = name.partition(":")
    return module, kind


def layer_class(name: str, sha256: str | None) -> type[WrittenLayer]:
    """Return the class of this name, whose module has this source; None: whatever source.

    Raises: LayersError where it was not loaded, has another source, or is no layer.
    """
    module, kind = split_name(name)
    if module not in LOADED or (LOADED[module].module is None and module not in SHIPPED.sources):
        loaded = f"; loaded are {', '.join(sorted(there))}" if (there := loaded_modules()) else ""
        msg = (
            f"the model has a layer of your own, {name}, whose code is not in the model folder; give --layers {module}"
        )
        raise LayersError(msg + loaded)
    if sha256 is not None and (here := identity_of(module)) != sha256:
        msg = f"{name}: the source of {_with_imports(module)} is not the one that the model was made with (SHA-256 "
        msg += f"{here[:12]}, the model has {sha256[:12]}); give that source, or export the model again"
        raise LayersError(msg)
    found = getattr(_module_of(module), kind, None)
    if not (isinstance(found, type) and issubclass(found, WrittenLayer)):
        msg = f"{name}: {module} has no class {kind} that is a freshet.Layer"
        raise LayersError(msg)
    return found


def _with_imports(module: str) -> str:
    """Return a module's name with those of the user's modules that it imports."""
    others = [one for one in reached(module, loaded_sources()) if one != module]
    return f"{module} (with {', '.join(others)})" if others else module


def _module_of(name: str) -> ModuleType:
    """Return a loaded module; one that came with a job is run at its first use.

    Raises: LayersError for one that cannot be run here.
    """
    with _one_at_a_time:
        source, module = LOADED[name]
        if module is None:
            try:
                module = SHIPPED.run(name)
            except Exception as error:
                msg = f"{name}, which came with the job, cannot be run here: {type(error).__name__}: {error}"
                raise LayersError(msg) from error
            LOADED[name] = Loaded(source, module)
        return module


def classes_of(torch_class: type) -> list[str]:
    """Return the names of the classes that are `of` a torch class, of modules that were loaded or imported.

    Raises: LayersError for one of the script that runs.
    """
    found = dict[type[WrittenLayer], str]()
    for name, one in loaded_modules().items():
        for kind in vars(one).values():
            if isinstance(kind, type) and issubclass(kind, WrittenLayer) and _is_of(kind, torch_class):
                found[kind] = name if kind.__module__ not in loaded_modules() else kind.__module__
    for kind in imported_classes():
        if kind in found or not _is_of(kind, torch_class):
            continue
        if kind.__module__ == "__main__":
            msg = f"{kind.__name__} is of {torch_class.__name__}, and stands in the script that runs; jobs import "
            raise LayersError(msg + "such a class: put it into a module of its own")
        load_layers([kind.__module__])
        found[kind] = kind.__module__
    return [f"{module}:{kind.__name__}" for kind, module in found.items()]


def imported_classes(base: type[WrittenLayer] = WrittenLayer) -> Iterator[type[WrittenLayer]]:
    """Yield the classes of written layers that modules of this process have by their names."""
    for kind in base.__subclasses__():
        if getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is kind:
            yield kind
        yield from imported_classes(kind)


def _is_of(kind: type[WrittenLayer], torch_class: type) -> bool:
    """Return whether a class names this torch class: itself, or PACKAGE.MODULE:CLASS of a module that has it."""
    if not isinstance(kind.of, str):
        return kind.of is torch_class
    module, name = split_name(kind.of)
    there = getattr(sys.modules.get(module), name, None)
    return there is torch_class or kind.of == f"{torch_class.__module__}:{torch_class.__qualname__}"
