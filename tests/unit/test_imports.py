"""The packages import in one direction, Java and PyTorch stay where they belong, and streaming code needs neither."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
# The modules of freshet/, floor by floor; the others follow, and freshet/__init__.py is a facade over all of them.
GROUND = (
    "errors kind_names kind_rows log_lines version edge_categories",
    "extras files kinds",
    "schema",
    "kinds_graph type_columns",
)
FOLDERS = ("freshet", "kernels", "gnn", "state", "partitioner", "operators", "job")
# Each imports only from its left.
ORDER = (*" ".join(GROUND).split(), *FOLDERS[1:], "freshet")
PYFLINK = ("job/*", "operators/flink/*", "state/flink_backend.py")
TORCH = ("gnn/pyg/*", "job/training/*", "gnn/torch_modules/*")
TORCH_NAMES = {"torch", "torch_geometric", "torch_sparse", "torch_scatter", "pyg_lib"}


class Import(NamedTuple):
    file: str
    line: int
    module: str
    at_start: bool  # runs when the file is imported: outside functions and `if TYPE_CHECKING:`

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


def walk(node: ast.AST, at_start: bool = True) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, at_start
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            yield from walk(ast.Module(child.body, []), False)
            yield from walk(ast.Module(child.orelse, []), at_start)
        else:
            yield from walk(child, at_start and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))


def imports_of(source: str, file: str) -> list[Import]:
    """Return the imports of a file; modules of ours without their `freshet.`, as their files are named."""
    found = []
    for node, at_start in walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif node.level:  # from . import x
            names = [".".join([*Path(file).parts[: -node.level], *([node.module] if node.module else [])])]
        else:  # `from gnn import export` imports gnn.export as well
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        found += [Import(file, node.lineno, name.removeprefix("freshet."), at_start) for name in names]
    return found


def package_files() -> list[Path]:
    return [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]


def package_of(file: str) -> str:
    return module_name(file).split(".")[0]


@pytest.fixture(scope="module")
def imports() -> list[Import]:
    found = [i for f in package_files() for i in imports_of(f.read_text(), f.relative_to(ROOT).as_posix())]
    assert {package_of(i.file) for i in found} == {*ORDER} - {"version"}, "every package has imports to look at"
    return found


def is_in(file: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(file, pattern) for pattern in patterns)


def test_reader_sees_every_form_of_import() -> None:
    source = """
import a.b, c
from d import e
from . import f
from .g import h
if TYPE_CHECKING:
    import i
def late():
    from j.k import l
class C:
    import m
try:
    import n
except ImportError:
    pass
"""
    got = {i.module: i.at_start for i in imports_of(source, "pkg/sub/mod.py")}
    assert got == {
        "a.b": True, "c": True, "d.e": True, "pkg.sub": True, "pkg.sub.g": True,
        "i": False, "j.k.l": False, "m": True, "n": True,
    }  # fmt: skip


def test_each_package_imports_only_from_its_left(imports: list[Import]) -> None:
    wrong = []
    for found in imports:
        importer, imported = package_of(found.file), found.module.split(".")[0]
        if imported in ORDER and ORDER.index(imported) > ORDER.index(importer):
            wrong.append(str(found))
    assert not wrong


def test_graph_and_state_know_no_models(imports: list[Import]) -> None:
    below = [i for i in imports if package_of(i.file) in ("state", "partitioner")]
    assert below
    assert not [str(i) for i in below if i.module.split(".")[0] == "gnn"]


def test_packages_do_not_import_tests_or_scripts(imports: list[Import]) -> None:
    assert not [str(i) for i in imports if i.module.split(".")[0] in ("tests", "scripts", "pytest", "hypothesis")]


def test_pyflink_stays_in_its_shells(imports: list[Import]) -> None:
    engine = {"pyflink", "py4j", "pemja", "apache_beam"}
    assert not [str(i) for i in imports if i.module.split(".")[0] in engine and not is_in(i.file, PYFLINK)]


def test_torch_stays_in_model_export_and_oracle(imports: list[Import]) -> None:
    assert not [str(i) for i in imports if i.module.split(".")[0] in TORCH_NAMES and not is_in(i.file, TORCH)]


def test_modules_with_torch_are_imported_late(imports: list[Import]) -> None:
    at_start = [i for i in imports if i.at_start and not is_in(i.file, TORCH)]
    assert at_start
    assert not [str(i) for i in at_start if is_in(i.module.replace(".", "/") + ".py", TORCH)]


def test_streaming_code_runs_without_torch_and_cores_without_flink() -> None:
    """Imports every module in a fresh process, as a worker does."""
    files = [f.relative_to(ROOT).as_posix() for f in package_files() if f.name != "__main__.py"]
    cores = [f for f in files if not is_in(f, (*TORCH, *PYFLINK)) and f != "freshet/__init__.py"]
    shells = [f for f in files if is_in(f, PYFLINK) and not is_in(f, TORCH)]
    assert cores
    assert shells
    code = f"""
import importlib, sys
for name in {[imported_name(f) for f in cores]}:
    importlib.import_module(name)
    assert "pyflink" not in sys.modules, name + " brings in pyflink"
for name in {[imported_name(f) for f in shells]} + ["freshet"]:
    importlib.import_module(name)
    assert "torch" not in sys.modules, name + " brings in torch"
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def test_the_command_reads_its_options_without_numpy() -> None:
    """OpenBLAS chooses its kernels when numpy is loaded: after `--processor` and `--resume` are read."""
    code = """
import sys
import freshet.job.run.preflight, freshet.job.run.processor
from freshet.job.cli import menu
menu([])
assert not {"numpy", "pyarrow", "numba"} & set(sys.modules), "loaded too early"
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def test_status_and_stop_begin_without_the_engine() -> None:
    """They are called again and again, and the operators and layers take a second to load."""
    code = """
import sys
import freshet.job.run.stop, freshet.job.status.page
assert not {"numba", "pandas", "freshet.gnn.model", "freshet.operators.factory"} & set(sys.modules), "slow to load"
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def test_a_job_without_topics_begins_without_a_client_of_kafka() -> None:
    code = """
import sys
import freshet.job.run.runner, freshet.job.results.check, freshet.job.results.export, freshet.job.serving.server
assert not {"kafka", "confluent_kafka"} & set(sys.modules), "slow to load"
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def test_packages_are_imported_by_one_name() -> None:
    """`job.cli` beside `freshet.job.cli` would be a second module of one file, with classes and caches of its own."""
    files = [*package_files(), *(f for top in ("tests", "scripts") for f in sorted((ROOT / top).rglob("*.py")))]
    assert len(files) > 500
    found = []
    for file in files:
        for node, _ in walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            found += [f"{file}: {name}" for name in names if not getattr(node, "level", 0)]
    assert not [line for line in found if line.rpartition(" ")[2].split(".")[0] in ORDER[:-1]]


@pytest.mark.parametrize("name", FOLDERS[1:])
def test_no_package_can_be_imported_by_another_name(name: str) -> None:
    with pytest.raises(ImportError, match=f"^{name}: import it as freshet.{name}; "):
        importlib.import_module(name)


def imported_name(file: str) -> str:
    """Return the name by which a module of the packages is imported."""
    return f"freshet.{module_name(file)}".removesuffix(".freshet")


def module_name(file: str) -> str:
    """Return a module's name inside `freshet`."""
    return file.removesuffix(".py").removesuffix("/__init__").removeprefix("freshet/").replace("/", ".")
