"""What processors get of the table's kernels: acquire and release instructions on arm64, the right order on x86-64."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.serving.instructions import ARM, PLAIN, X86

ROOT = Path(__file__).resolve().parents[3]
# Target -> function -> what its accesses must look like (letters: see tests/support/serving/instructions.py).
EXPECTED = {
    ARM: {  # Python 3.12 gives a loop two ends, and with it two second looks
        "publish_word": r"^R",
        "read_word": r"^A",
        "_keep_undo": r"^l*RF[ls]*s$",  # the entry is taken, then filled
        "_replace": r"^[lc]*RF[ls]*s[ls]*cRs?$",  # odd, the row and (a call) its vector, even
        "put_numbers": r"ssss.*c.*RR[ls]*$",  # a new slot is whole before the index names it, and then it counts
        "set_positions": r"^lRF[ls]*sRs?$",
        "_find_numbers": r"^[ls]*A[ls]*A[ls]*$",  # of the index, before what the slot holds
        "read_numbers": r"^[ls]*A[ls]*c",  # the epoch, before any row
        "read_slot": r"^l*LA.*Al.*c(LA)+c*[ls]*$",  # a copy (a call) ends before the second look
        "_read_ring": r"c(LA[ls]*)+$",
        "_read_former": r"^l*AAl+LA[ls]*c",  # nothing of the ring is taken before the second look
        "read_positions": r"^LAA?.*l",
        "slots_in_ring": r"^l+sLA",
    },
    # Loads and stores keep their order: a plain move is enough, if only the compiler leaves it where it stands.
    X86: {
        "publish_word": r"^s",
        "read_word": r"^l",
        "_keep_undo": r"^l*sF[ls]*s$",
        "_replace": r"^[lc]*s?l*sF[ls]*s[ls]*cs+$",
        "set_positions": r"^lsF[ls]*ss$",
        "read_slot": r"cFl",
        "_read_ring": r"cFl",
        "_read_former": r"^l+Fl",
        "read_positions": r"^Fl",
        "slots_in_ring": r"^l+sFl",
    },
}
# What must be found to be wrong without each of them.
_LOOKS, _CHANGES = "read_slot _read_ring _read_former read_positions slots_in_ring", "_keep_undo _replace set_positions"
NOTICED = {
    "load_acquire": {(ARM, name) for name in f"read_word _find_numbers read_numbers {_LOOKS}".split()},
    "store_release": {(ARM, name) for name in f"publish_word put_numbers {_CHANGES}".split()},
    "fence_acquire": {(target, name) for target in (ARM, X86) for name in _LOOKS.split()},
    "fence_release": {(target, name) for target in (ARM, X86) for name in _CHANGES.split()},
}


def accesses(folder: Path, *plain: str) -> dict[str, dict[str, str]]:
    """Of all kernels, compiled anew."""
    environ = os.environ | {"NUMBA_CACHE_DIR": str(folder)}
    command = [sys.executable, "-m", "tests.support.serving.instructions", *plain]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    return found


def wrong(found: dict[str, dict[str, str]]) -> set[tuple[str, str]]:
    """The functions whose accesses are not as they must be."""
    return {
        (target, name)
        for target, patterns in EXPECTED.items()
        for name, pattern in patterns.items()
        if not re.search(pattern, found[target].get(name, ""))  # "": made a part of others
    }


def test_the_kernels_have_them_in_the_right_places(tmp_path: Path) -> None:
    found = accesses(tmp_path)
    assert wrong(found) == set(), found
    for name, letters in found[X86].items():
        assert "X" not in letters, name


@pytest.mark.parametrize("plain", PLAIN)
def test_one_that_is_missing_is_noticed(plain: str, tmp_path: Path) -> None:
    """A plain load or store in its place, or no fence."""
    assert wrong(accesses(tmp_path, plain)) >= NOTICED[plain]
