"""`freshet check` of logs that are not whole any more, or hold what no epoch brought."""

import json
import shutil

import pytest

from tests.support.runs.finished_run import Run, epochs_of, part_of, with_nan


def without(*names):
    def remove(out):
        for name in names:
            path = out / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return remove


DAMAGE = {
    "the last epochs": (without(*map(epochs_of, (3, 4, 5))), "the last epoch is 3, by status/ it is 6"),
    "the last epochs with their rows": (
        without(*map(epochs_of, (3, 4, 5)), *map(part_of, (3, 4, 5))),
        "events of the input are in no epoch",
    ),
    "the last epochs, their rows and status": (
        without(*map(epochs_of, (3, 4, 5)), *map(part_of, (3, 4, 5)), "status"),
        "by run.json it is 6",
    ),
    "an epoch": (without(epochs_of(2)), "1 of 6 epochs are not there, the first is 3"),
    "rows in the middle": (without(part_of(2)), "rows after epoch 0, by status/ it is"),
    "the status": (without("status"), "status/: 0 of 1 files of the sink are there"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_log_that_has_lost_something_fails(tmp_path, capsys, what):
    run, (damage, said) = Run(tmp_path), DAMAGE[what]
    damage(run.out)
    code, line = run.check(capsys, oracle="own")
    assert code == 1
    assert said in "\n".join(line["faults"])


def test_rows_of_an_epoch_that_never_was_fail(tmp_path, capsys):
    run = Run(tmp_path)
    run.rewrite(
        lambda table: type(table).from_pylist(
            [*table.to_pylist(), {**table[:1].to_pylist()[0], "epoch": 7}], table.schema
        )
    )
    code, line = run.check(capsys, oracle="own")
    assert code == 1
    assert line["faults"][0] == "embeddings/: 1 rows are of epochs that never were, such as 7"


@pytest.mark.parametrize(("field", "told"), [("events", 119), ("rejected", 17), ("rows", 1)])
def test_run_json_and_status_must_agree_with_each_other_and_the_input(tmp_path, capsys, field, told):
    run = Run(tmp_path)
    content = json.loads((run.out / "run.json").read_bytes())
    run.update("run.json", summary={**content["summary"], field: told})
    code, line = run.check(capsys, oracle="own")
    assert code == 1
    assert f"by the summary in run.json it is {told}" in line["faults"][0]
    run.update("status/sink-0.json", **{field: told})
    code, line = run.check(capsys, oracle="own")
    assert code == 1
    assert any(f"{told} {field}" in fault or f"it is {told}" in fault for fault in line["faults"])


def test_superseded_rows_must_be_finite_unless_the_oracle_says_otherwise(tmp_path, capsys):
    run = Run(tmp_path)
    run.rewrite(with_nan, file=1)
    code, line = run.check(capsys, oracle="own")
    assert code == 1
    assert (line["nonfinite"], line["mismatched"], line["epochs_checked"]) == (1, 1, 2)
    assert (line["worst"]["got"], line["worst"]["epoch"]) == ("nan", 2)


def test_rows_of_deleted_vertices_are_zero(tmp_path, capsys):
    def haunted(table):
        rows = table.to_pylist()
        dead.extend([row for row in rows if row["deleted"]][:1])
        for row in dead:
            row["embedding"][0] = 1.0
        return type(table).from_pylist(rows, table.schema)

    run, dead = Run(tmp_path), []
    for file in range(6):
        if not dead:
            run.rewrite(haunted, file)
    assert len(dead) == 1
    code, line = run.check(capsys, oracle="own")
    assert (code, line["faults"]) == (1, ["embeddings/: 1 rows of deleted vertices are not zero"])
