"""Modules of the user's that a module of written layers imports: part of its identity, and shipped with it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from freshet.gnn.own import loading
from freshet.gnn.own.loading import (
    LayersError,
    classes_of,
    identity_of,
    imported_classes,
    install_layers,
    layer_class,
    load_layers,
    loaded_modules,
    loaded_sources,
    sha256_of,
)
from freshet.gnn.own.shipped import SHIPPED
from freshet.gnn.own.sources import own_imports

FILES = {
    "__init__.py": "",
    "layers.py": """
import numpy
from typing import TYPE_CHECKING
from . import helpers
from .bases import Halved
from .convs import Conv
if TYPE_CHECKING:
    from .types_alone import Nothing
class Mine(Halved, of=Conv):
    def source(self, x):
        return helpers.FACTOR * x
class Aliased(Halved, of="own_package.others:Named"):
    pass
""",
    "helpers.py": "FACTOR = 2\n",
    "bases.py": """
import freshet
class Halved(freshet.Layer):
    def update(self, aggregate):
        return aggregate / 2
""",
    "convs.py": "class Conv:\n    pass\n",
    "others.py": "from own_package.convs import Conv as Named\n",
    "types_alone.py": "",
}
OURS = ["own_package", "own_package.bases", "own_package.convs", "own_package.helpers"]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of a user's, and nothing loaded yet."""
    monkeypatch.setattr(loading, "LOADED", {})
    folder = tmp_path / "own_package"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    SHIPPED.sources.clear()
    forget()


def forget() -> None:
    """Have nothing of the package imported, as in a new process."""
    for name in [name for name in sys.modules if name.startswith("own_package")]:
        del sys.modules[name]


def load(monkeypatch: pytest.MonkeyPatch) -> str:
    """Load the layers as a new process does, and return their identity."""
    monkeypatch.setattr(loading, "LOADED", {})
    forget()
    load_layers(["own_package.layers"])
    return identity_of("own_package.layers")


def test_imports_are_found_without_running_them(package: Path) -> None:
    (package / "convs.py").write_text(FILES["convs.py"] + "raise SystemExit\n")
    assert sorted(own_imports("own_package.layers", FILES["layers.py"])) == OURS
    assert own_imports("own_package.bases", "import numpy, torch, json, freshet.errors, none_there") == {}
    with pytest.raises(LayersError, match=r"it cannot be imported \(SystemExit: \)"):
        load_layers(["own_package.layers"])


def test_a_change_of_what_a_layer_imports_is_another_layer(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = load(monkeypatch)
    assert before == load(monkeypatch) != sha256_of(FILES["layers.py"])
    (package / "types_alone.py").write_text("X = 1\n")
    assert load(monkeypatch) == before
    (package / "helpers.py").write_text("FACTOR = 3\n")
    assert load(monkeypatch) != before
    with pytest.raises(LayersError, match=r"the source of own_package.layers \(with own_package, own_package.bases, "):
        layer_class("own_package.layers:Mine", before)


def test_what_a_layer_imports_is_shipped_with_it(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    identity, sources = load(monkeypatch), loaded_sources()
    assert sorted(sources) == sorted([*OURS, "own_package.layers"]) and list(loaded_modules()) == ["own_package.layers"]
    with pytest.raises(LayersError, match=r"give --layers own_package.bases; loaded are own_package.layers"):
        layer_class("own_package.bases:Halved", None)
    for file in package.iterdir():
        file.unlink()
    package.rmdir()
    monkeypatch.setattr(loading, "LOADED", {})
    forget()
    install_layers(sources)
    assert "own_package.convs" not in sys.modules
    mine = layer_class("own_package.layers:Mine", identity)({})
    np.testing.assert_array_equal(mine.update(mine.source(np.ones((1, 1)))), [[1]])
    monkeypatch.setattr(loading, "LOADED", {})
    forget()
    install_layers(sources | {"own_package.helpers": "raise RuntimeError('not here')\n"})
    with pytest.raises(LayersError, match=r"own_package.layers, which came with the job, cannot be run here: Runtime"):
        layer_class("own_package.layers:Mine", None)
    assert "own_package.layers" not in sys.modules


def test_a_class_that_was_imported_stands_for_its_module(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from own_package import layers, others  # type: ignore[import-not-found]

    monkeypatch.setattr(loading, "imported_classes", imported_classes)
    conv: Any = layers.Conv
    assert conv is others.Named
    layers.Aliased.of = None
    assert classes_of(conv) == ["own_package.layers:Mine"]
    layers.Aliased.of = "own_package.others:Named"
    assert classes_of(conv) == ["own_package.layers:Mine", "own_package.layers:Aliased"]
    layers.Mine.__module__ = "__main__"
    monkeypatch.setattr(sys.modules["__main__"], "Mine", layers.Mine, raising=False)
    monkeypatch.setattr(loading, "LOADED", {})
    with pytest.raises(LayersError, match="Mine is of Conv, and stands in the script that runs"):
        classes_of(conv)
