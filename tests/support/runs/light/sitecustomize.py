"""Leave out what Freshet never uses: Python imports this module first wherever its folder is in PYTHONPATH.

PyFlink tries to import Beam, which only its process mode needs, and PyArrow pandas, which only `to_pandas` needs. They
took a third of the processor time of a short job on Flink: 3.4 s in each of its processes that run Python.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_LEFT_OUT = frozenset({"apache_beam", "pandas"})


class _LightFinder(PathFinder):
    """Finds what lies in the folders of `sys.path`, but for what is left out."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return None if fullname in _LEFT_OUT else super().find_spec(fullname, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = _LightFinder
