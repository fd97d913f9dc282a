"""The house: rooms import downwards only, no circle, and nothing is too large to be read."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.unit.test_imports import FOLDERS, GROUND, ROOT, imports_of, module_name, package_files

LINES_MAX, FUNCTION_MAX = 400, 60
# The rooms of a package, floor by floor: a room imports from floors below its own. A module outside a folder is a room.
# A room that has rooms of its own stands here, too.
FLOORS = {
    "freshet": GROUND,
    "kernels": (
        "blas kernel_calls user_cache",
        "processor",
        "compiled",
        "kernel",
        "atomics prefetch",
    ),
    "gnn": (
        "limits numerics weights_file answers edge_reads smallest",
        "rows synopses",
        "convs own",
        "declarations link_head",
        "model",
        "kinds",
        "layers module_answers",
        "readout",
        "kind_layers plan",
        "any_plan block_pass",
        "describing oracles",
        "describe pyg",
        "torch_modules",
    ),
    "state": (
        "block_columns chunks entries entry_file page_copies seed task_parts",
        "codec flink_backend memory salt",
        "served table",
        "adjacency copy_ahead entry_lists image",
        "sweep",
        "checksums rocks_backend",
    ),
    "partitioner": (
        "config ids net_change type_tables",
        "graph_tables",
        "events words",
        "epoch_log event_builder hash_index splitter times",
        "edge_keys reference slots id_lookup",
        "degrees edge_types placement",
        "deletions",
        "epoch_end inspection live_graph netting",
        "event_columns",
        "core",
    ),
    "operators": (
        "limits control output_folders record_blocks dataflow threads",
        "sampling telemetry outcome",
        "spill_file core",
        "parser graph",
        "aggregates",
        "storage",
        "inbox epochs snapshot",
        "stage settings",
        "sink network",
        "factory embed",
        "checks initial",
        "warm_up base_image live_attributes",
        "live_graph",
        "rehearsal what_if",
        "flink",
    ),
    "operators/aggregates": (
        "exact_sums intrinsics accumulator",
        "finishing",
        "fold",
        "aggregate fold_store",
        "attention edge_networks extrema gates moments products redone sums",
        "registry",
    ),
    "job": (
        "errors units console uris",
        "machine references",
        "kafka stores",
        "options",
        "folder",
        "flink local",
        "lifecycle service",
        "status",
        "serving",
        "history run",
        "results embed size application swap",
        "live",
        "training what_if",
        "commands",
        "cli main dev",
        "python",
    ),
}


def modules() -> list[Path]:
    return [file for top in (*FOLDERS, "scripts", "tests") for file in sorted((ROOT / top).rglob("*.py"))]


def floors_of(package: str) -> dict[str, int]:
    return {room: floor for floor, rooms in enumerate(FLOORS[package]) for room in rooms.split()}


@pytest.fixture(scope="module")
def arrows() -> list[tuple[str, str]]:
    """Which module of ours imports which, at its start or later."""
    names = {module_name(f.relative_to(ROOT).as_posix()) for f in package_files()}
    found = set()
    for file in package_files():
        name = module_name(file.relative_to(ROOT).as_posix())
        for one in imports_of(file.read_text(), file.relative_to(ROOT).as_posix()):
            for target in (one.module, one.module.rpartition(".")[0]):
                if target in names and target != name:
                    found.add((name, target))
                    break
    assert len(found) > 300
    return sorted(found)


@pytest.mark.parametrize("package", FLOORS)
def test_rooms_import_from_lower_floors(package: str, arrows: list[tuple[str, str]]) -> None:
    floors = floors_of(package)
    wrong, begin = [], "" if package == "freshet" else package.replace("/", ".") + "."
    for importer, imported in arrows:
        room, target = (
            name.removeprefix(begin).split(".")[0] if name.startswith(begin) else "" for name in (importer, imported)
        )
        if room in floors and target in floors and room != target and floors[target] >= floors[room]:
            wrong.append(f"{importer} imports {imported}")
    assert not wrong


@pytest.mark.parametrize("package", FLOORS)
def test_every_room_has_a_floor(package: str) -> None:
    rooms = {f.relative_to(ROOT / package).with_suffix("").parts[0] for f in (ROOT / package).rglob("*.py")}
    assert rooms - {"__init__"} == set(floors_of(package))


def test_the_registry_alone_knows_the_rooms_of_aggregates(arrows: list[tuple[str, str]]) -> None:
    begin, rooms = "operators.aggregates.", FLOORS["operators/aggregates"][-2].split()
    wrong = [
        f"{importer} imports {imported}"
        for importer, imported in arrows
        if not importer.startswith(begin)
        and imported.startswith(begin)
        and imported.removeprefix(begin).split(".")[0] in rooms
    ]
    assert not wrong


SYNOPSES = "gnn/synopses/", "operators/aggregates/registry.py"


def asked_synopses(source: str) -> Iterator[int]:
    """Lines that may choose by the type of a synopsis: its class is named, and neither called nor a hint.

    Also any `isinstance` or `type` of what is called a synopsis, whatever the classes are called there.
    """
    tree = ast.parse(source)
    harmless = set[ast.AST]()
    for node in ast.walk(tree):
        hints = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        if isinstance(node, ast.Call):
            harmless.add(node.func)
        elif isinstance(node, ast.Subscript):
            hints.append(node.slice)
        elif isinstance(node, ast.Attribute) and node.attr == "__name__":  # in errors
            harmless.add(node.value)
        harmless.update(inside for hint in hints if hint is not None for inside in ast.walk(hint))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and node not in harmless:
            name = node.id if isinstance(node, ast.Name) else node.attr
            if name.endswith("Synopsis") and name != "Synopsis":  # the base of all
                yield node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args and node not in harmless:
            asked = ast.unparse(node.args[0]).split(".")[-1].lower()
            if node.func.id in ("isinstance", "type") and asked.removesuffix(".inner").endswith("synopsis"):
                yield node.lineno


def test_only_the_registry_chooses_by_the_type_of_a_synopsis() -> None:
    files = {f: f.relative_to(ROOT).as_posix() for f in package_files()}
    wrong = [
        f"{name}:{line}"
        for file, name in files.items()
        if not name.startswith(SYNOPSES)
        for line in asked_synopses(file.read_text())
    ]
    assert not wrong


@pytest.mark.parametrize(
    ("source", "is_wrong"),
    [
        ("if isinstance(layer.synopsis, SumSynopsis): pass", True),
        ("if isinstance(one, SumSynopsis | MaxSynopsis): pass", True),
        ("if type(one) is of_messages.SumSynopsis: pass", True),
        ("if type(synopsis) is KINDS[0]: pass", True),
        ("match one:\n    case SumSynopsis(): pass", True),
        ("TABLE = {SumSynopsis: 1}", True),
        ("def f(one: SumSynopsis) -> list[MaxSynopsis]: return SumSynopsis(1)", False),
        ("KEPT = Aggregate[SumSynopsis](1)", False),
    ],
)
def test_a_choice_by_the_type_of_a_synopsis_is_seen(source: str, is_wrong: bool) -> None:
    assert bool(list(asked_synopses(source))) == is_wrong


def test_modules_make_no_circle(arrows: list[tuple[str, str]]) -> None:
    sorter = TopologicalSorter[str]()
    for importer, imported in arrows:
        sorter.add(importer, imported)
    sorter.prepare()  # raises CycleError, which names the circle


def public_classes(file: Path) -> Iterator[str]:
    """The public classes of a module; those inside a class or function are no names of their own."""
    left: list[ast.AST] = [ast.parse(file.read_text())]
    while left:
        for node in ast.iter_child_nodes(left.pop()):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name
            elif isinstance(node, ast.If | ast.Try | ast.With):
                left.append(node)


def test_no_public_class_has_the_name_of_another() -> None:
    named: dict[str, list[str]] = {}
    for file in package_files():
        for name in public_classes(file):
            named.setdefault(name, []).append(str(file.relative_to(ROOT)))
    assert len(named) > 500
    assert not {name: files for name, files in named.items() if len(files) > 1}


def test_no_module_is_long() -> None:
    long = {str(f.relative_to(ROOT)): n for f in modules() if (n := len(f.read_text().splitlines())) > LINES_MAX}
    assert not long


def test_no_function_is_long() -> None:
    long = {f"{f.relative_to(ROOT)}:{name}": n for f in modules() for name, n in functions(f) if n > FUNCTION_MAX}
    assert not long


def functions(file: Path) -> Iterator[tuple[str, int]]:
    """Each function with its lines, without those of its docstring."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if ast.get_docstring(node) is not None:
                lines -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
            yield node.name, lines


def test_mypy_checks_scripts_as_the_package() -> None:
    checked = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert checked["strict"] and set(checked["packages"]) == {"freshet", "scripts", "examples"}
