from pathlib import Path

import pytest

from operators.cut_log import Cut, CutLog, LostCutError

CUTS = [Cut(1, 10, False), Cut(2, 17, True), Cut(3, 17, False), Cut(4, 30, False)]


def written(path: Path) -> CutLog:
    log = CutLog(path)
    for cut in CUTS:
        log.append(cut)
    return log


def test_cuts_come_back(tmp_path: Path) -> None:
    written(tmp_path / "checkpoints" / "cuts.jsonl").close()
    log = CutLog(tmp_path / "checkpoints" / "cuts.jsonl")
    assert list(log.cuts.values()) == CUTS
    assert log.last == 4
    assert log.of(2) == CUTS[1]
    log.close()


def test_a_cut_is_in_the_file_at_once(tmp_path: Path) -> None:
    """A SIGKILL right after `append` loses nothing."""
    log = written(tmp_path / "cuts.jsonl")
    assert (tmp_path / "cuts.jsonl").read_text() == "[1,10,0]\n[2,17,1]\n[3,17,0]\n[4,30,0]\n"
    log.close()


def test_before_the_first_cut() -> None:
    log = CutLog()
    assert log.last == 0
    assert log.of(0) == Cut(0, 0, True)
    with pytest.raises(LostCutError):
        log.of(1)


@pytest.mark.parametrize("torn", ["[", "[5,31", "[5,31,0]"])
def test_a_torn_last_line_is_dropped_and_written_over(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "cuts.jsonl"
    written(path).close()
    with path.open("a") as file:
        file.write(torn)
    log = CutLog(path)
    assert log.last == 4
    log.append(Cut(5, 40, True))
    log.close()
    assert path.read_text().splitlines()[3:] == ["[4,30,0]", "[5,40,1]"]
    assert CutLog(path).last == 5


def test_a_gap_is_refused_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cuts.jsonl"
    written(path).close()
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:1] + lines[2:]))
    with pytest.raises(LostCutError, match="epoch 3 follows epoch 1; the cut log has lost an entry"):
        CutLog(path)


def test_a_lost_beginning_is_refused_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cuts.jsonl"
    written(path).close()
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(LostCutError, match="epoch 2 follows epoch 0"):
        CutLog(path)


def test_a_line_that_is_no_cut_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cuts.jsonl"
    path.write_text("[1,10,0]\n[2,1\x00\x00\n[3,20,0]\n")
    with pytest.raises(LostCutError, match="line 2 is no cut"):
        CutLog(path)


def test_only_the_next_epoch_can_be_cut(tmp_path: Path) -> None:
    log = written(tmp_path / "cuts.jsonl")
    for epoch in (4, 6):
        with pytest.raises(LostCutError, match=f"cut of epoch {epoch} can't follow that of epoch 4"):
            log.append(Cut(epoch, 50, False))
    log.close()


def test_an_epoch_that_the_log_does_not_have_is_named(tmp_path: Path) -> None:
    log = written(tmp_path / "cuts.jsonl")
    with pytest.raises(LostCutError, match=r"cuts\.jsonl has no epoch 5, but the state has passed it"):
        log.of(5)
    log.close()
    log.close()
