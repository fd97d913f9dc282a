"""The lock and scripts/install.py: what is locked, what an extra needs, and what the installers are called with."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from scripts.install import BOOTSTRAP, CPU_INDEX, PYTHONS, ROOT, locked, name_of, read_sets, steps

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK = (ROOT / "requirements.lock").read_text()


def names(*keys: str) -> set[str]:
    sets = read_sets()
    return {name_of(block) for block in locked(set[str]().union(*(sets[key] for key in keys)))}


def test_every_requirement_is_locked_at_a_version_that_it_allows() -> None:
    versions = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", LOCK, flags=re.MULTILINE))
    groups = [PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"].values()]
    wanted = [Requirement(line) for group in (*groups, *PROJECT["dependency-groups"].values()) for line in group]
    assert len(wanted) > 30
    assert [str(one) for one in wanted if versions.get(name_of(one.name)) not in one.specifier] == []


def test_every_locked_package_has_hashes_and_none_an_address() -> None:
    blocks = re.split(r"^(?=\w)", LOCK, flags=re.MULTILINE)[1:]
    assert len(blocks) > 100
    assert [block for block in blocks if "--hash=sha256:" not in block] == []
    assert "://" not in LOCK and "--index" not in LOCK


def test_an_extra_brings_what_it_asks_for_and_the_base_nothing_of_it() -> None:
    base, all_of_them = names(""), names(*read_sets())
    assert {"apache-flink", "apache-beam", "pemja", "numba", "llvmlite", "lz4"} <= base
    assert not base & {"torch", "sympy", "matplotlib", "fonttools", "fastapi", "starlette", "uvicorn", "pytest", "uv"}
    assert {"fastapi", "starlette", "uvicorn"} <= names("serve")
    assert {"torch", "torch-geometric", "sympy", "aiohttp"} <= names("torch")
    assert {"matplotlib", "fonttools", "numpy"} <= names("plots")
    assert names(BOOTSTRAP) == {"pip", "setuptools", "uv"}
    assert len(all_of_them) == len(set(re.findall(r"^[a-z0-9-]+(?===)", LOCK, flags=re.MULTILINE)))


def test_nothing_is_installed_without_a_hash_but_the_checkout(tmp_path: Path) -> None:
    locked_packages, checkout = steps(locked(["torch"]), tmp_path, cpu=False)
    assert "--require-hashes" in locked_packages and checkout[-2:] == ["--editable", str(ROOT)]
    assert re.search(r"^torch==", Path(locked_packages[-1]).read_text(), flags=re.MULTILINE)


def test_a_torch_for_the_cpu_comes_from_pytorchs_index_without_cuda(tmp_path: Path) -> None:
    version = re.search(r"^torch==(\S+)", LOCK, flags=re.MULTILINE)
    assert version
    locked_packages, torch, _ = steps(locked(["torch", "torch-geometric"]), tmp_path, cpu=True)
    assert torch == ["--index-url", CPU_INDEX, f"torch=={version[1]}+cpu"]
    left = {name_of(block) for block in re.split(r"^(?=\w)", Path(locked_packages[-1]).read_text(), flags=re.MULTILINE)}
    assert {"torch-geometric", "sympy", "networkx", "jinja2"} <= left
    assert not [name for name in left if name == "torch" or name.startswith(("nvidia-", "cuda-"))]
    assert len(steps(locked(["numpy"]), tmp_path, cpu=True)) == 2, "without the extra there is no torch to install"


def test_the_same_pythons_everywhere() -> None:
    fit = SpecifierSet(PROJECT["project"]["requires-python"])
    assert [minor for minor in range(8, 20) if f"3.{minor}" in fit] == [minor for _, minor in PYTHONS]
    classifiers = [text for text in PROJECT["project"]["classifiers"] if "Python :: 3." in text]
    assert classifiers == [f"Programming Language :: Python :: {major}.{minor}" for major, minor in PYTHONS]
    makefile = (ROOT / "Makefile").read_text()
    assert all(f"python{major}.{minor}" in makefile for major, minor in PYTHONS)


@pytest.mark.parametrize("file", ["scripts/install.py", "job/Dockerfile"])
def test_no_path_names_a_python(file: str) -> None:
    assert not re.search(r"python3\.\d", (ROOT / file).read_text())
