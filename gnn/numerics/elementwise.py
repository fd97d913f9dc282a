"""Functions of rows in place: each value, or each row, depends on itself alone, wherever it stands in a block.

numpy's own `maximum` gives 0.0 or -0.0 depending on the position in a SIMD register, so even relu is a kernel here.
Transcendental functions are computed in float64 and rounded once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from freshet.kernels.compiled import compiling
from freshet.kernels.kernel import exp, inner, kernel

_log: Any = math.log if compiling() else np.log  # where kernels are plain Python, math.log raises for 0 and below
_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946
_SQRT_HALF = math.sqrt(0.5)
_SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)


@kernel
def relu(x: np.ndarray) -> None:
    """Set the values <= 0 of a flat array to 0; NaN stays.

    By way of a sum, after which the compiler writes all of them: storing some lanes of a vector takes five times as
    long.
    """
    for i in range(x.size):
        value = x[i] + np.float32(0)
        x[i] = np.float32(0) if value <= 0 else value


@kernel
def leaky_relu(x: np.ndarray, slope: np.float32) -> None:
    """Multiply the values <= 0 of a flat array by slope."""
    for i in range(x.size):
        x[i] = x[i] if x[i] > 0 else x[i] * slope


@kernel
def prelu(x: np.ndarray, slopes: np.ndarray) -> None:
    """Multiply the values <= 0 of (n, d) by their channel's slope."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            x[i, j] = x[i, j] if x[i, j] > 0 else x[i, j] * slopes[j]


@kernel
def elu(x: np.ndarray, alpha: float) -> None:
    """Replace the values <= 0 of a flat array by alpha * (exp(v) - 1)."""
    for i in range(x.size):
        if not x[i] > 0:
            x[i] = np.float32(alpha * math.expm1(np.float64(x[i])))


@kernel
def selu(x: np.ndarray) -> None:
    """Apply SELU to a flat array."""
    for i in range(x.size):
        v = np.float64(x[i])
        x[i] = np.float32(_SELU_SCALE * (v if v > 0 else _SELU_ALPHA * math.expm1(v)))


@kernel
def gelu(x: np.ndarray) -> None:
    """Apply GELU (exact, by erf) to a flat array."""
    for i in range(x.size):
        v = np.float64(x[i])
        x[i] = np.float32(0.5 * v * (1.0 + math.erf(v * _SQRT_HALF)))


@kernel
def gelu_tanh(x: np.ndarray) -> None:
    """Apply GELU in its tanh approximation to a flat array."""
    for i in range(x.size):
        v = np.float64(x[i])
        x[i] = np.float32(0.5 * v * (1.0 + math.tanh(_SQRT_2_OVER_PI * (v + 0.044715 * v * v * v))))


@kernel
def tanh(x: np.ndarray) -> None:
    """Apply tanh to a flat array."""
    for i in range(x.size):
        x[i] = np.float32(math.tanh(np.float64(x[i])))


@kernel
def sigmoid(x: np.ndarray) -> None:
    """Apply the logistic function to a flat array."""
    for i in range(x.size):
        x[i] = np.float32(1.0 / (1.0 + exp(-np.float64(x[i]))))


@kernel
def silu(x: np.ndarray) -> None:
    """Apply v * sigmoid(v) to a flat array."""
    for i in range(x.size):
        v = np.float64(x[i])
        x[i] = np.float32(v / (1.0 + exp(-v)))


@kernel
def exponential(x: np.ndarray) -> None:
    """Apply e^v to a flat array."""
    for i in range(x.size):
        x[i] = np.float32(exp(np.float64(x[i])))


@kernel
def logarithm(x: np.ndarray) -> None:
    """Apply the natural logarithm to a flat array."""
    for i in range(x.size):
        x[i] = np.float32(_log(np.float64(x[i])))


@kernel
def square_root(x: np.ndarray) -> None:
    """Apply the square root to a flat array."""
    for i in range(x.size):
        x[i] = np.float32(np.sqrt(np.float64(x[i])))


@kernel
def sine(x: np.ndarray) -> None:
    """Apply the sine to a flat array."""
    for i in range(x.size):
        x[i] = np.float32(np.sin(np.float64(x[i])))


@kernel
def cosine(x: np.ndarray) -> None:
    """Apply the cosine to a flat array."""
    for i in range(x.size):
        x[i] = np.float32(np.cos(np.float64(x[i])))


@kernel
def power(x: np.ndarray, exponent: float) -> None:
    """Apply v^exponent to a flat array; of -0.5 the inverse of the square root, as torch does."""
    for i in range(x.size):
        v = np.float64(x[i])
        x[i] = np.float32(1.0 / np.sqrt(v) if exponent == -0.5 else np.power(v, exponent))


@kernel
def sum_groups(x: np.ndarray, out: np.ndarray) -> None:
    """Write the sums of groups of neighbouring columns. Shapes: x (n, groups * size) float32; out (n, groups)."""
    size = x.shape[1] // out.shape[1]
    for i in range(x.shape[0]):
        for j in range(out.shape[1]):
            total = np.float64(0)
            for c in range(j * size, (j + 1) * size):
                total += np.float64(x[i, c])
            out[i, j] = np.float32(total)


@kernel
def normalize_rows(x: np.ndarray) -> None:
    """Divide each row of (n, d) by max(its Euclidean norm, 1e-12), as torch.nn.functional.normalize."""
    for i in range(x.shape[0]):
        squares = np.float64(0.0)
        for j in range(x.shape[1]):
            v = np.float64(x[i, j])
            squares += v * v
        norm = math.sqrt(squares)
        norm = 1e-12 if norm < 1e-12 else norm
        for j in range(x.shape[1]):
            x[i, j] = np.float32(np.float64(x[i, j]) / norm)


@kernel
def clamp(x: np.ndarray, low: float, high: float) -> None:
    """Bring the values of a flat array between low and high; NaN stays."""
    for i in range(x.size):
        if x[i] < low:
            x[i] = np.float32(low)
        elif x[i] > high:
            x[i] = np.float32(high)


@kernel
def softplus(x: np.ndarray, beta: float, threshold: float) -> None:
    """Apply log(1 + exp(beta v)) / beta to the values of a flat array with beta v <= threshold."""
    for i in range(x.size):
        v = np.float64(x[i]) * beta
        if not v > threshold:
            x[i] = np.float32(_log_1p_exp(v) / beta)


@kernel
def celu(x: np.ndarray, alpha: float) -> None:
    """Replace the values <= 0 of a flat array by alpha * (exp(v / alpha) - 1)."""
    for i in range(x.size):
        if not x[i] > 0:
            x[i] = np.float32(alpha * math.expm1(np.float64(x[i]) / alpha))


@kernel
def mish(x: np.ndarray) -> None:
    """Apply v * tanh(log(1 + exp(v))) to a flat array."""
    for i in range(x.size):
        v = np.float64(x[i])
        x[i] = np.float32(v * math.tanh(_log_1p_exp(v)))


@kernel
def log_sigmoid(x: np.ndarray) -> None:
    """Apply log(1 / (1 + exp(-v))) to a flat array."""
    for i in range(x.size):
        x[i] = np.float32(-_log_1p_exp(-np.float64(x[i])))


@kernel
def scale(x: np.ndarray, factor: np.float32, offset: np.float32) -> None:
    """Apply v * factor + offset to a flat array."""
    for i in range(x.size):
        x[i] = x[i] * factor + offset


@kernel
def softmax(x: np.ndarray) -> None:
    """Apply softmax to each row of (n, d)."""
    for i in range(x.shape[0]):
        top, total = _exponentials(x[i])
        for j in range(x.shape[1]):
            x[i, j] = np.float32(math.exp(np.float64(x[i, j]) - top) / total)


@kernel
def log_softmax(x: np.ndarray) -> None:
    """Apply the logarithm of softmax to each row of (n, d)."""
    for i in range(x.shape[0]):
        top, total = _exponentials(x[i])
        total = math.log(total)
        for j in range(x.shape[1]):
            x[i, j] = np.float32((np.float64(x[i, j]) - top) - total)


@kernel
def normalize(x: np.ndarray, eps: float) -> None:
    """Divide each row of (n, d) by max(its Euclidean norm, eps)."""
    for i in range(x.shape[0]):
        norm = math.sqrt(_squares(x[i], 0.0))
        norm = eps if norm < eps else norm
        for j in range(x.shape[1]):
            x[i, j] = np.float32(np.float64(x[i, j]) / norm)


@kernel
def to_length(x: np.ndarray, length: float, eps: float) -> None:
    """Multiply each row of (n, d) by length / (eps + its Euclidean norm)."""
    for i in range(x.shape[0]):
        norm = eps + math.sqrt(_squares(x[i], 0.0))
        for j in range(x.shape[1]):
            x[i, j] = np.float32(length * np.float64(x[i, j]) / norm)


@kernel
def times_length(x: np.ndarray, other: np.ndarray) -> None:
    """Multiply each row of (n, d) by the Euclidean norm of that row of the other (n, e)."""
    for i in range(x.shape[0]):
        length = math.sqrt(_squares(other[i], 0.0))
        for j in range(x.shape[1]):
            x[i, j] = np.float32(np.float64(x[i, j]) * length)


@kernel
def layer_norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float) -> None:
    """Bring each row of (n, d) to mean 0 and variance 1, then to the weight and bias of each channel."""
    for i in range(x.shape[0]):
        mean = np.float64(0.0)
        for j in range(x.shape[1]):
            mean += np.float64(x[i, j])
        mean /= x.shape[1]
        spread = math.sqrt(_squares(x[i], mean) / x.shape[1] + eps)
        for j in range(x.shape[1]):
            x[i, j] = np.float32((np.float64(x[i, j]) - mean) / spread * weight[j] + bias[j])


@kernel
def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> None:
    """Divide each row of (n, d) by the root of the mean of its squares, then to the weight of each channel."""
    for i in range(x.shape[0]):
        size = math.sqrt(_squares(x[i], 0.0) / x.shape[1] + eps)
        for j in range(x.shape[1]):
            x[i, j] = np.float32(np.float64(x[i, j]) / size * weight[j])


@inner
def _log_1p_exp(v: float) -> float:
    return v + math.log1p(math.exp(-v)) if v > 0 else math.log1p(math.exp(v))


@inner
def _exponentials(row: np.ndarray) -> tuple[np.float64, np.float64]:
    """The largest value, and the sum of exp(value - largest)."""
    top = np.float64(row[0])
    for j in range(row.size):
        top = max(top, np.float64(row[j]))
    total = np.float64(0.0)
    for j in range(row.size):
        total += math.exp(np.float64(row[j]) - top)
    return top, total


@inner
def _squares(row: np.ndarray, mean: float) -> np.float64:
    """The sum of the squares of value - mean."""
    total = np.float64(0.0)
    for j in range(row.size):
        v = np.float64(row[j]) - mean
        total += v * v
    return total
