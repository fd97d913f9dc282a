"""What `make quick` runs for changed files."""

from __future__ import annotations

from pathlib import Path

from scripts.quick import unit_tests


def test_tests_of_a_changed_room_come_with_those_of_the_module_first(tmp_path: Path) -> None:
    for name in ("test_schema", "job/test_cli", "job/run/test_a", "job/run/test_resume", "job/serving/test_table"):
        path = tmp_path / f"tests/unit/{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    run = ["tests/unit/job/run/test_resume.py", "tests/unit/job/run/test_a.py"]
    assert unit_tests(["job/run/resume.py"], tmp_path) == run
    assert unit_tests(["job/run/prepare/kafka.py"], tmp_path) == sorted(run), "the room around, where it has no tests"
    assert unit_tests(["freshet/schema.py"], tmp_path) == ["tests/unit/test_schema.py"]
    assert unit_tests(["tests/unit/job/test_cli.py", "tests/unit/job/gone/test_x.py"], tmp_path) == [
        "tests/unit/job/test_cli.py"
    ]
    assert unit_tests(["README.md", "tests/support/runs/jobs.py"], tmp_path) == []
