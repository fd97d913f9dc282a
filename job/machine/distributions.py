"""Files of freshet-gnn and freshet-client that do not go together.

Both distributions have the package `freshet`, and freshet-gnn has all files of freshet-client. Of one version they are
the same to the byte and may be installed beside each other. Of two versions the later one has overwritten some files of
the other, and whichever is removed takes the common ones along.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

PACKAGE = Path(next(iter(sys.modules[__name__.partition(".")[0]].__path__)))
_AGAIN = "pip uninstall freshet-client freshet-gnn, then install freshet-gnn alone, which has the clients, too"


def mixed_files(package: Path = PACKAGE) -> str:
    """Describe inconsistent files of the package, and what to do; empty if all are of one version."""
    if not package.is_dir():
        return f"{package}: is in an archive, and Java and the kernels need files; install the wheel of freshet-gnn"
    if not (package / "__init__.py").exists():
        return f"{package}: files are missing, as freshet-client, which had them in common, was removed; {_AGAIN}"
    found = [one.removesuffix(".dist-info") for one in os.listdir(package.parent) if one.endswith(".dist-info")]
    versions = {one.partition("-")[2] for one in found if one.startswith(("freshet_gnn-", "freshet_client-"))}
    if len(versions) < 2:
        return ""
    return f"{package}: files of {' and '.join(sorted(versions))}, by freshet-gnn and freshet-client; {_AGAIN}"
