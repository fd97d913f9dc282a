"""Modules that came with a job, as text: Python finds them here, ahead of files of the same names."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec, spec_from_loader
from types import ModuleType

from freshet.gnn.own.sources import is_package_of


class ShippedModules(MetaPathFinder, InspectLoader):
    """The modules of a job, by their names."""

    def __init__(self) -> None:
        """Have none."""
        self.sources = dict[str, str]()

    def add(self, name: str, source: str) -> None:
        """Have this source for a module."""
        self.sources[name] = source
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
            sys.meta_path.append(_PackagesOf(self))

    def run(self, name: str) -> ModuleType:
        """Run a module's source and return the module, in whose place another may stand in sys.modules."""
        spec = self.find_spec(name)
        assert spec is not None  # it was added
        module = module_from_spec(spec)
        is_new = sys.modules.setdefault(name, module) is module
        try:
            self.exec_module(module)  # what the user gave to `freshet run`
        except BaseException:
            if is_new:
                del sys.modules[name]
            raise
        return module

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return the spec of a module that came with the job."""
        if name not in self.sources:
            return None
        return spec_from_loader(name, self, origin=f"<{name} of the job>")

    def get_source(self, name: str) -> str:
        """Return a module's source."""
        return self.sources[name]

    def is_package(self, name: str) -> bool:
        """Return whether others are in it."""
        return is_package_of(name, self.sources)


class _PackagesOf(MetaPathFinder):
    """The packages that shipped modules are in, where nothing else has them: empty ones."""

    def __init__(self, shipped: ShippedModules) -> None:
        self._shipped = shipped

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        if not is_package_of(name, self._shipped.sources):
            return None
        return ModuleSpec(name, None, is_package=True)


SHIPPED = ShippedModules()
