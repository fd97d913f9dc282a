"""All errors that users see are found in `freshet.errors`, with the option at fault."""

from __future__ import annotations

import ast

import pytest

import freshet
from freshet import errors
from freshet.errors import FreshetError, InputError, UsageError
from tests.unit.test_imports import ROOT, imported_name, package_files


def errors_of_the_package() -> dict[str, str]:
    """The public classes of errors for users, with their modules."""
    bases: dict[str, list[str]] = {}
    homes = {}
    for file in package_files():
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = [ast.unparse(one).rpartition(".")[2] for one in node.bases]
                homes[node.name] = imported_name(file.relative_to(ROOT).as_posix())

    def is_one(name: str) -> bool:
        return name == "FreshetError" or any(is_one(base) for base in bases.get(name, []) if base != name)

    return {name: homes[name] for name in bases if is_one(name) and not name.startswith("_")}


def test_each_error_for_users_is_there() -> None:
    found = errors_of_the_package()
    assert len(found) > 40
    assert found == errors.HOMES | dict.fromkeys(("FreshetError", "InputError"), "freshet.errors")
    assert set(dir(errors)) == set(found)


def test_they_are_the_classes_that_are_raised() -> None:
    for name in ("UsageError", "NotYetError", "SnapshotError", "ModelError", "JobFailed"):
        assert issubclass(getattr(errors, name), FreshetError)
    assert errors.NotYetError is freshet.NotYetError
    with pytest.raises(AttributeError, match=r"module 'freshet\.errors' has no attribute 'NoSuchError'"):
        _ = errors.NoSuchError


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("--parts: got 0, expected a positive number", "--parts"),
        ("--out O: its job runs; --resume goes on", "--out"),
        ("job.yaml: --epoch-events: got 0", "--epoch-events"),
        ("-D: goes with --runtime flink", "-D"),
        ("O: no job in it; give the --out folder", None),
        ("--parts: got 0\n--memory: got 1", "--parts"),
    ],
)
def test_the_option_at_fault(text: str, option: str | None) -> None:
    assert UsageError(text).option == option
    error = InputError(text)
    error.named = "ids"
    assert error.option == "ids"
