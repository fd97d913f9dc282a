"""`freshet check` against change logs made by hand from the oracle: it passes what is right and nothing else."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.gnn.model import save_model
from freshet.gnn.pyg import oracle as torch_oracle
from freshet.job.errors import UsageError
from freshet.job.results.check import check
from freshet.operators.output_folders import LogFolders
from freshet.operators.parser.rules import Rules
from freshet.operators.sink.change_log import ChangeLog
from freshet.operators.sink.change_log_reader import ChangeLogReader
from freshet.operators.sink.epoch_rows import LogFile
from tests.support.graphs.models import conv, make_model
from tests.support.runs.finished_run import (
    FIRST,
    OUT,
    SECOND,
    WIDTH,
    Run,
    altered,
    epochs_of,
    with_another,
    with_nan,
    with_one_twice,
    without_first,
)


@pytest.mark.parametrize("kind", ["int", "string"])
@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("snapshot", [False, True])
def test_a_right_run_passes(tmp_path, capsys, kind, undirected, snapshot):
    run = Run(tmp_path, kind, snapshot, undirected)
    code, line = run.check(capsys, oracle="own")
    assert code == 0
    assert line["max_rel_error"] < 1e-6
    assert "stopped" not in run.told
    assert line["vertices"] == len(run.graph) > 3
    expected = {"missing": 0, "extra": 0, "nan": 0, "mismatched": 0, "duplicates": 0, "epoch": 6, "oracle": "own"}
    expected |= {"epochs_checked": 1, "nonfinite": 0, "approximate": False, "faults": []}
    expected |= {"events": run.accepted + run.rejected, "rejected": run.rejected}
    assert {name: line[name] for name in expected} == expected
    assert run.rejected > 10


def test_a_run_that_accepted_nothing_is_no_success(tmp_path, capsys):
    run = Run(tmp_path)
    code, line = run.check(capsys, oracle="own")
    assert (code, line["faults"]) == (0, [])
    assert f"{run.rejected} of 120 records were rejected" in run.told
    epochs, rejected = tmp_path / "out" / "epochs", 20 * 6
    for name in (FIRST, SECOND):
        (tmp_path / name).write_bytes(b"not json\n" * 60)
    for path in epochs.glob("*.parquet"):
        table = pq.read_table(path)
        nothing = pa.array([0] * len(table), table.schema.field("events").type)
        pq.write_table(table.set_column(table.schema.names.index("events"), "events", nothing), path)
    for name in ("status/sink-0.json", "run.json"):
        run.update(name, events=rejected, rejected=rejected)
    run.update("run.json", summary={"events": rejected, "rejected": rejected})
    code, line = run.check(capsys, oracle="own")
    assert (code, line["events"], line["rejected"]) == (1, rejected, rejected)
    assert "no record was accepted: 120 of 120 records were rejected (100.0%)" in line["faults"]


def test_a_run_of_an_approximate_model_says_so(tmp_path, capsys):
    norm = {"type": "frozen_norm", "of": "graph_norm", "channels": OUT}
    run = Run(tmp_path, model=make_model(2, [conv("sage_conv", WIDTH, OUT), norm]))
    code, line = run.check(capsys, oracle="own")
    assert (code, line["approximate"]) == (0, True)
    assert "the model is approximate" in run.told


@pytest.mark.skipif(not torch_oracle.available(), reason="torch and torch-geometric are not installed")
def test_pytorch_geometric_is_the_oracle_where_it_is_installed(tmp_path, capsys):
    code, line = Run(tmp_path).check(capsys)
    assert (code, line["oracle"]) == (0, "pyg")


@pytest.mark.skipif(not torch_oracle.available(), reason="torch and torch-geometric are not installed")
def test_where_it_would_not_fit_the_own_pass_is_taken_unless_it_is_asked_for(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("freshet.job.results.full_pass._PYG_MESSAGES", 1 << 50)
    run = Run(tmp_path)
    code, line = run.check(capsys)
    assert (code, line["oracle"]) == (0, "own")
    assert "PyTorch Geometric would take about" in run.told
    code, line = run.check(capsys, oracle="pyg")
    assert (code, line["oracle"]) == (0, "pyg")


@pytest.mark.parametrize(
    ("change", "field"),
    [(altered, "max_abs_error"), (with_another, "extra"), (with_one_twice, "duplicates"), (with_nan, "mismatched")],
)
def test_one_wrong_row_fails(tmp_path, capsys, change, field):
    run = Run(tmp_path)
    run.rewrite(change)
    code, line = run.check(capsys, oracle="own")
    assert code == 1
    assert line[field] >= 0.5


def test_a_row_that_is_not_there_fails(tmp_path, capsys):
    run = Run(tmp_path, epochs=1)
    run.rewrite(without_first)
    code, line = run.check(capsys, oracle="own")
    assert (code, line["missing"]) == (1, 1)
    (fault,) = line["faults"]
    assert fault.startswith("embeddings/: ")
    assert "rows after epoch 0, by status/ it is" in fault
    assert fault in run.told


def test_a_superseded_row_that_is_wrong_is_found_by_a_sample(tmp_path, capsys):
    run = Run(tmp_path)
    run.rewrite(altered, file=1)
    assert run.check(capsys, oracle="own")[0] == 0
    code, line = run.check(capsys, oracle="own", every=4)  # superseded by then
    assert (code, line["epochs_checked"]) == (0, 2)
    code, line = run.check(capsys, oracle="own", every=1)
    assert (code, line["epochs_checked"], line["epoch"]) == (1, 6, 6)
    assert line["worst"]["epoch"] in (2, 3)
    assert line["worst"]["got"] == pytest.approx(line["worst"]["expected"] + 0.5)


def deaf(monkeypatch):
    """A Parser that drops half of all deletions without a word."""
    append = Rules.append

    def mutated(self, record, builder, position):
        if isinstance(record, dict) and str(record.get("op")).startswith("del"):
            if record.get("id", record.get("src")) % 2:
                return None
        return append(self, record, builder, position)

    monkeypatch.setattr(Rules, "append", mutated)


def test_a_parser_that_drops_deletions_is_found(tmp_path, capsys, monkeypatch):
    deaf(monkeypatch)
    run = Run(tmp_path)
    code, line = run.check(capsys, oracle="own")
    assert code == 1
    assert line["events"] > run.accepted + run.rejected
    assert line["max_rel_error"] > 1e-4 or line["extra"] > 0
    assert any("counts of events are wrong; the first: epoch 1 has" in fault for fault in line["faults"])
    assert any(fault.startswith("the run tells of") for fault in line["faults"])


def test_a_small_channel_beside_a_large_one_is_held(tmp_path, capsys):
    """18.7 that reads 16.0, beside 5e7: relative to the largest value that is nothing."""
    model = make_model(1, [conv("graph_conv", WIDTH, OUT, bias=False)])
    for name in ("lin_rel", "lin_root"):
        model.weights[f"layers.0.{name}.weight"][:] = np.eye(OUT, WIDTH)
    run = Run(tmp_path, model=model, epochs=1)
    (tmp_path / FIRST).write_bytes(b'{"op":"set_features","id":1,"x":[5e7,18.7,0,0]}\n')
    (tmp_path / SECOND).write_bytes(b"")
    table = pq.read_table(run.out / epochs_of(0))
    row = {"epoch": 1, "source": FIRST, "partition": 0, "next_offset": 1, "events": 1}
    pq.write_table(type(table).from_pylist([row], table.schema), run.out / epochs_of(0))
    run.update("run.json", summary={"events": 1, "rejected": 0, "rows": 1, "epochs": 1})
    run.update("status/sink-0.json", events=1, rejected=0, rows=1)

    def reading(value):
        row = {"id": 1, "epoch": 1, "embedding": [5e7, value, 0.0], "deleted": False}
        return lambda table: type(table).from_pylist([row], table.schema)

    run.rewrite(reading(18.7))
    assert run.check(capsys, oracle="own")[0] == 0
    run.rewrite(reading(16.0))
    code, line = run.check(capsys, oracle="own")
    assert code == 1
    assert line["faults"] == []
    assert line["max_rel_error"] == pytest.approx(2.7 / 18.7, rel=1e-3)
    worst = {"id": 1, "channel": 1, "got": 16.0, "epoch": 1}
    assert line["worst"].items() >= worst.items()


def test_the_tolerance_decides(tmp_path, capsys):
    run = Run(tmp_path)
    run.rewrite(altered)
    code, line = run.check(capsys, oracle="own", tolerance=1.0)
    assert code == 0
    assert line["max_rel_error"] > 1e-4


def test_a_run_that_was_stopped_is_checked_at_its_last_recorded_epoch(tmp_path, capsys):
    run = Run(tmp_path)
    # Another sink part may have come further than the epochs tell: rows of later epochs do not count.
    for name in ("epochs-00000004.parquet", "epochs-00000005.parquet"):
        (run.out / "epochs" / name).unlink()
    run.update("run.json", state="stopped", epoch=4, summary=None)
    run.update("status/sink-0.json", visible=4)
    assert ChangeLogReader(run.out).last_epoch() == 4
    code, line = run.check(capsys, oracle="own")
    assert (code, line["epoch"]) == (0, 4)
    assert "stopped before the end of its input" in run.told


def test_files_may_lie_elsewhere_by_now(tmp_path, capsys):
    run = Run(tmp_path)
    (tmp_path / "moved").mkdir()
    for name in (FIRST, SECOND):
        (tmp_path / name).rename(tmp_path / "moved" / name)
    code, _ = run.check(capsys, oracle="own", events=[str(tmp_path / "moved")])
    assert code == 0


def test_the_run_tells_what_is_not_given_and_a_flag_wins(tmp_path, capsys):
    run = Run(tmp_path, undirected=True)
    assert run.check(capsys, oracle="own")[0] == 0
    assert run.check(capsys, oracle="own", undirected=False)[0] == 1


def test_wrong_use_is_refused(tmp_path, capsys):
    run = Run(tmp_path, snapshot=True)
    with pytest.raises(UsageError, match=r"--snapshot: the run in .* began with"):
        run.check(capsys, snapshot=None)
    with pytest.raises(UsageError, match="got 1 files, the run read 2"):
        run.check(capsys, events=[str(tmp_path / FIRST)])
    (tmp_path / SECOND).write_bytes(b"".join((tmp_path / SECOND).read_bytes().splitlines(True)[:20]))
    with pytest.raises(UsageError, match=r"b\.jsonl ends at 20 after 17 events, the run read up to 30: these are not"):
        run.check(capsys)
    other = make_model(2, [conv("graph_conv", WIDTH, OUT)])
    save_model(other, tmp_path / "other")
    with pytest.raises(UsageError, match="give the model of the run"):
        check(tmp_path / "other", [str(tmp_path / FIRST)], run.out)
    with pytest.raises(UsageError, match="no folder embeddings"):
        check(tmp_path / "model", [str(tmp_path / FIRST)], tmp_path)
    for path in (run.out / "epochs").iterdir():
        path.unlink()
    with pytest.raises(UsageError, match="no epoch is complete"):
        run.check(capsys)


@pytest.mark.parametrize("after", ["__init__", "last_epoch"])
def test_a_run_may_go_on_while_it_is_checked(tmp_path, capsys, monkeypatch, after):
    """An epoch comes between the list of the rows and that of the epochs, or between that and the status."""
    run = Run(tmp_path)
    log, [newest] = ChangeLog(LogFolders(run.out), 0, OUT, "int", [FIRST, SECOND]), run.epochs[-1:]
    for name in (epochs_of(5), f"embeddings/part-0-{5:08d}.parquet"):
        (run.out / name).unlink()
    run.update("run.json", state="running", epoch=None, summary=None)
    run.update("status/sink-0.json", epoch=5, visible=5)
    former = getattr(ChangeLogReader, after)

    def goes_on(reader, *given):
        found = former(reader, *given)
        monkeypatch.setattr(ChangeLogReader, after, former)
        log.write(LogFile(5, [newest]))
        run.update("status/sink-0.json", epoch=6, visible=6)
        return found

    monkeypatch.setattr(ChangeLogReader, after, goes_on)
    code, line = run.check(capsys, oracle="own")
    assert (code, line["epoch"], line["faults"]) == (0, 5, [])
    code, line = run.check(capsys, oracle="own")
    assert (code, line["epoch"], line["faults"]) == (0, 6, [])
