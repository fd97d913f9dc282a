import os
from pathlib import Path

import pytest

from operators.direct_file import BLOCK_BYTES, BUFFER_BYTES, DirectFile

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
