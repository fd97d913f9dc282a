"""The modules of a user's that a module of written layers imports, found in its source, without running any."""

from __future__ import annotations

import ast
import site
import sysconfig
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import decode_source, find_spec, resolve_name
from pathlib import Path

_FRESHET = "freshet"


def own_imports(name: str, source: str) -> dict[str, str]:
    """Return the sources of modules of the user's that a module imports, and these in turn, by name.

    A module is the user's if it is of the same package as the one that imports it, or not installed: no library.
    """
    found, waiting = {name: source}, [name]
    while waiting:
        one = waiting.pop()
        spec = _spec_of(one)
        is_package = spec is not None and spec.submodule_search_locations is not None
        for other in imported_names(found[one], one, is_package=is_package):
            if other not in found and (text := _own_source(other, one)) is not None:
                found[other] = text
                waiting.append(other)
    return {one: text for one, text in found.items() if one != name}


def reached(name: str, sources: Mapping[str, str]) -> list[str]:
    """Return which of these modules one of them imports, itself among them, in the order of their names."""
    found, waiting = {name}, [name]
    while waiting:
        one = waiting.pop()
        names = imported_names(sources[one], one, is_package=is_package_of(one, sources))
        more = {other for other in names if other in sources} - found
        found |= more
        waiting += more
    return sorted(found)


def is_package_of(name: str, names: Collection[str]) -> bool:
    """Return whether a module is a package of others of these names."""
    return any(other.startswith(f"{name}.") for other in names)


def imported_names(source: str, name: str, *, is_package: bool) -> Iterator[str]:
    """Yield what may be the names of modules that a source imports, also inside functions; not those of types alone."""
    package = name if is_package else name.rpartition(".")[0]
    for written, names in _statements(source):
        try:
            base = resolve_name(written, package)
        except ImportError:  # the import itself says so
            continue
        parts = base.split(".")
        yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))
        yield from (f"{base}.{one}" for one in names)


@cache
def _statements(source: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return the imports of a source: the module, with its dots, and what is taken from it."""
    found = list[tuple[str, tuple[str, ...]]]()
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found += [(one.name, ()) for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append(("." * node.level + (node.module or ""), tuple(one.name for one in node.names)))
        of_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        waiting += node.orelse if isinstance(node, ast.If) and of_types else ast.iter_child_nodes(node)
    return found


def _own_source(name: str, importer: str) -> str | None:
    """Return the source of a module if it is the user's."""
    top = name.partition(".")[0]
    if top == _FRESHET or (spec := _spec_of(name)) is None or not (spec.origin or "").endswith(".py"):
        return None
    file = Path(str(spec.origin)).resolve()
    if top != importer.partition(".")[0] and any(file.is_relative_to(folder) for folder in _libraries()):
        return None
    return decode_source(file.read_bytes())


def _spec_of(name: str) -> ModuleSpec | None:
    """Return where a module is, without importing the packages that it is in."""
    first, *parts = name.split(".")
    try:
        spec = find_spec(first)
        for part in parts:
            if spec is None or spec.submodule_search_locations is None:
                return None
            spec = PathFinder.find_spec(f"{spec.name}.{part}", spec.submodule_search_locations)
    except (ImportError, ValueError):  # what has no spec: __main__
        return None
    return spec


@cache
def _libraries() -> list[Path]:
    """Return the folders of Python's own modules and of installed ones."""
    paths = sysconfig.get_paths()
    found = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return [Path(one).resolve() for one in (*found, site.getusersitepackages())]
