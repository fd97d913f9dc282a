"""Two distributions with files in common: of one version they agree, otherwise the command says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet.job.machine.python_path import PACKAGE, mixed_files


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "freshet"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (tmp_path / "freshet_gnn-1.2.dist-info").mkdir()
    return folder


def test_one_version_may_be_there_twice(package: Path) -> None:
    assert not mixed_files(package)
    (package.parent / "freshet_client-1.2.dist-info").mkdir()
    (package.parent / "numpy-2.1.dist-info").mkdir()
    assert not mixed_files(package)
    assert not mixed_files(PACKAGE)


def test_two_versions_are_refused(package: Path) -> None:
    (package.parent / "freshet_client-1.3.dist-info").mkdir()
    said = mixed_files(package)
    assert said.startswith(f"{package}: files of 1.2 and 1.3, by freshet-gnn and freshet-client; pip uninstall")


def test_what_a_removed_client_took_along_is_missed(package: Path) -> None:
    (package / "__init__.py").unlink()
    said = mixed_files(package)
    assert said.startswith(f"{package}: files are missing") and "install freshet-gnn alone" in said


def test_an_archive_is_no_place_for_it(tmp_path: Path) -> None:
    archive = tmp_path / "all.zip"
    archive.touch()
    said = mixed_files(archive / "freshet")
    assert said.startswith(f"{archive}/freshet: is in an archive") and "removed" not in said
