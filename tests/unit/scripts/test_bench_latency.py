"""What the scripts that measure a running job read of its status files."""

from __future__ import annotations

from pathlib import Path

from freshet.files.json_file import write_json
from freshet.operators.output_folders import STATUS
from scripts.bench.latency import Figures


def test_figures_of_all_parts_together(tmp_path: Path) -> None:
    (tmp_path / STATUS).mkdir()
    for part, epoch in enumerate((3, 4)):
        told = {"applied_counts": [[1, 2], [part, 5]], "epoch": epoch, "events": 10 * epoch}
        write_json(tmp_path / STATUS / f"sink-{part}.json", told)
    write_json(tmp_path / STATUS / "sink-2.json", {"epoch": 9})  # of something else
    found = Figures(tmp_path)
    assert (found.epochs, found.events) == (4, 40)
    assert found.counts[:4].tolist() == [0, 1, 10, 0]
