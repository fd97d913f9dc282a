import os
from pathlib import Path
from typing import Any

import pytest

from freshet.operators.sink.direct_file import BLOCK_BYTES, BUFFER_BYTES, DirectFile, replace_whole
from freshet.state.checksums.sealed import STEP_BYTES, SealedFile, SealError

SIZES = [0, 1, BLOCK_BYTES, BUFFER_BYTES - 1, BUFFER_BYTES, 2 * BUFFER_BYTES + 17]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("folder", ["on disk", "in memory"])  # with direct I/O and, as a rule, without
def test_a_file_holds_what_was_written(size: int, folder: str, tmp_path: Path) -> None:
    path = tmp_path / "file" if folder == "on disk" else Path(f"/dev/shm/freshet-direct-{os.getpid()}")
    data = os.urandom(size)
    try:
        with DirectFile(path) as file:
            for at in range(0, size, 1_000_003):
                assert file.write(memoryview(data)[at : at + 1_000_003]) == len(data[at : at + 1_000_003])
            assert file.tell() == size
        assert path.read_bytes() == data
    finally:
        path.unlink(missing_ok=True)


def test_what_is_seen_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is synced before it has its name, the folder after that; of a failure nothing is seen."""
    path, calls = tmp_path / "file", []
    for name, real in (("fdatasync", os.fdatasync), ("replace", os.replace), ("fsync", os.fsync)):

        def note(*args: Any, call: Any = real, name: str = name) -> None:
            calls.append((name, path.read_bytes() if path.exists() else None))
            call(*args)

        monkeypatch.setattr(os, name, note)
    replace_whole(path, lambda file: file.write(b"first"))
    replace_whole(path, lambda file: file.write(b"second"))
    expected = [("fdatasync", None), ("replace", None), ("fsync", b"first")]
    assert calls == [*expected, ("fdatasync", b"first"), ("replace", b"first"), ("fsync", b"second")]

    def fails(file: DirectFile) -> None:
        file.write(b"half")
        raise ValueError

    with pytest.raises(ValueError):
        replace_whole(path, fails)
    assert path.read_bytes() == b"second"


@pytest.mark.parametrize("rows", [0, 1, STEP_BYTES - 1, STEP_BYTES, BUFFER_BYTES - 20, BUFFER_BYTES, 2 * BUFFER_BYTES])
@pytest.mark.parametrize("footer", [0, 12, 100_000, BUFFER_BYTES + 5])
def test_a_seal_stands_between_rows_and_footer(rows: int, footer: int, tmp_path: Path) -> None:
    """Also where what is behind it has been drained before it was known to be the footer."""
    path = tmp_path / "file"
    before, behind = os.urandom(rows), os.urandom(footer) + footer.to_bytes(4, "little") + b"PAR1"
    with DirectFile(path) as file:
        file.write(before)
        file.write(behind)
        file.seal()
    data = path.read_bytes()
    assert (data[:rows], data[-len(behind) :]) == (before, behind)
    assert len(data) - rows - len(behind) == 32 + 4 * -(-rows // STEP_BYTES)
    with SealedFile(path) as sealed:
        assert bytes(sealed.read()) == data
        for begin in (0, max(rows - 3, 0), rows, rows + 5, len(data) - 8, len(data)):
            sealed.seek(begin)
            assert bytes(sealed.read(STEP_BYTES + 7)) == data[begin : begin + STEP_BYTES + 7]
        assert sealed.seek(0, os.SEEK_END) == len(data)
    for shorter in [data[1:]] * (rows > 0) + [data[:-1]] * (footer < BUFFER_BYTES):
        path.write_bytes(shorter)
        with pytest.raises(SealError):
            SealedFile(path).read()
