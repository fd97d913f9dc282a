"""A row's bits depend on the row alone."""

import os
import platform
import subprocess
import sys

import numpy as np
import pytest

from freshet.gnn.layers.chain import Chain
from freshet.gnn.numerics import elementwise
from freshet.gnn.numerics.dense import matmul
from freshet.kernels.blas import use_one_thread
from freshet.kernels.processor import BLAS_VARIABLE, runs_here
from tests.support.graphs.models import ACTIVATIONS, make_model

SHAPES = [(128, 256), (128, 80), (128, 40), (7, 5), (1, 3), (5, 1), (1, 1), (3, 2), (100, 47), (602, 41), (33, 17)]


def rows(seed: int, n: int, width: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, width)).astype(np.float32)


def bits(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).view(np.uint32)


@pytest.mark.parametrize(("k", "m"), SHAPES)
def test_a_row_alone_has_the_bits_of_the_row_among_many(k: int, m: int) -> None:
    x, w = rows(1, 200, k), rows(2, k, m)
    together = matmul(x, w)
    np.testing.assert_allclose(together, x.astype(np.float64) @ w, atol=1e-4)
    for i in range(0, 200, 7):
        np.testing.assert_array_equal(bits(matmul(x[i : i + 1], w)), bits(together[i : i + 1]))


@pytest.mark.parametrize(("k", "m"), SHAPES)
def test_shuffles_and_batches_of_any_size_keep_every_row(k: int, m: int) -> None:
    rng = np.random.default_rng(3)
    x, w = rows(1, 1100, k), rows(2, k, m)
    together = matmul(x, w)
    for size in (2, 63, 64, 65, 128, 299, 300, 1100):
        pick = rng.permutation(1100)[:size]
        np.testing.assert_array_equal(bits(matmul(x[pick], w)), bits(together[pick]))


def test_bits_do_not_depend_on_where_the_arrays_lie_in_memory() -> None:
    x, w = rows(1, 130, 20), rows(2, 20, 9)
    expected = bits(matmul(x, w))
    for shift in range(1, 9):
        buffer = np.empty(x.size + 16, np.float32)
        moved = buffer[shift : shift + x.size].reshape(x.shape)
        moved[:] = x
        np.testing.assert_array_equal(bits(matmul(moved, w)), expected)


def test_a_row_of_nan_leaves_the_others_alone() -> None:
    x, w = rows(1, 64, 20), rows(2, 20, 9)
    expected = matmul(x, w)
    x[5] = np.nan
    got = matmul(x, w)
    assert np.isnan(got[5]).all()
    np.testing.assert_array_equal(np.delete(got, 5, axis=0), np.delete(expected, 5, axis=0))


def test_no_rows_and_given_output() -> None:
    w = rows(2, 20, 9)
    assert matmul(np.empty((0, 20), np.float32), w).shape == (0, 9)
    x, out = rows(1, 70, 20), np.full((70, 9), np.nan, np.float32)
    assert matmul(x, w, out) is out
    np.testing.assert_array_equal(out, matmul(x, w))


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"got shapes \(2, 3\) and \(4, 5\)"):
        matmul(rows(0, 2, 3), rows(0, 4, 5))
    with pytest.raises(ValueError, match="out is float32"):
        matmul(rows(0, 2, 3), rows(0, 3, 5), np.empty((2, 4), np.float32))


@pytest.mark.parametrize("spec", ACTIVATIONS, ids=lambda spec: "-".join(map(str, spec.values())))
def test_activations_treat_every_value_by_itself(spec: dict) -> None:
    chain = Chain(
        make_model(0, [{"type": "graph_conv", "in_channels": 5, "out_channels": 5}, spec]), *_only(spec, "layers.1")
    )
    x = rows(4, 67, 5) * 4
    x.reshape(-1)[:7] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40]
    before = x.copy()
    together = chain.apply(x, own=False)
    np.testing.assert_array_equal(bits(x), bits(before))
    for i in range(67):
        np.testing.assert_array_equal(bits(chain.apply(x[i : i + 1], own=False)), bits(together[i : i + 1]))
    assert np.isnan(together.reshape(-1)[4])


def test_normalised_rows_are_of_length_one_and_alone() -> None:
    x = rows(5, 40, 13)
    x[3] = 0
    together = x.copy()
    elementwise.normalize_rows(together)
    np.testing.assert_allclose(np.linalg.norm(np.delete(together, 3, axis=0), axis=1), 1, atol=1e-6)
    assert not together[3].any()
    for i in range(40):
        alone = x[i : i + 1].copy()
        elementwise.normalize_rows(alone)
        np.testing.assert_array_equal(bits(alone), bits(together[i : i + 1]))


def test_blas_threads_do_not_change_bits() -> None:
    script = (
        "import hashlib, numpy as np; from freshet.gnn.numerics.dense import matmul;"
        "r = np.random.default_rng(0).standard_normal;"
        "h = hashlib.sha256();"
        "[h.update(matmul(r((200, k)).astype('f4'), r((k, m)).astype('f4')).tobytes())"
        f" for k, m in {[*SHAPES, (512, 1024)]}]; print(h.hexdigest())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"OPENBLAS_NUM_THREADS": threads, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in ("1", "2")
    }
    assert len(found) == 1


def test_numpy_brings_the_blas_that_is_held_to_one_thread() -> None:
    assert use_one_thread()


def test_a_process_that_gets_no_more_memory_can_multiply() -> None:
    """OpenBLAS would ask for its work memory for ever."""
    program = """
import resource
import numpy as np
from freshet.gnn.numerics.dense import matmul
x, w = np.ones((60, 128), np.float32), np.ones((128, 64), np.float32)  # so many that BLAS multiplies them
out = np.empty((60, 64), np.float32)
used = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (used + (4 << 20), resource.RLIM_INFINITY))
print(matmul(x, w, out).sum())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert float(done.stdout) == 60 * 64 * 128


def _only(spec: dict, name: str) -> tuple[list, list[str]]:
    from pydantic import TypeAdapter

    from freshet.gnn.declarations import DenseLayer

    return [TypeAdapter(DenseLayer).validate_python(spec)], [name]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names of kernels of x86-64")
@pytest.mark.parametrize("core", ["Haswell", "Nehalem", "Prescott", "Sandybridge", "SkylakeX"])
def test_a_row_has_its_bits_with_all_kernels(core: str) -> None:
    """Those for Haswell sum six of twelve rows in another order than the other six."""
    if not runs_here(core):
        pytest.skip(f"this processor does not run the kernels for {core}")
    script = (
        "import numpy as np; from freshet.gnn.numerics.dense import block_of, matmul;"
        "r = np.random.default_rng(0).standard_normal\n"
        f"for k, m in {[*SHAPES, (128, 512)]}:\n"
        "    x, w = r((730, k)).astype('f4'), r((k, m)).astype('f4'); y = matmul(x, w)\n"
        "    for i in (0, 5, 6, 11, 12, 63, 64, 127, 128, 129, 479, 480, 599, 719, 729):\n"
        "        assert (matmul(x[i:i + 1], w)[0] == y[i]).all(), (k, m, i)\n"
        "    assert (matmul(x[::-1], w)[::-1] == y).all() and abs(y - x @ w).max() < 1e-3, (k, m)\n"
        "print(block_of(128, 80).rows)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | {BLAS_VARIABLE: core}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == (60 if core == "Haswell" else 64)
