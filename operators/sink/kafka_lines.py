r"""Changes as lines of text that the job's SQL splits into Kafka records; `operators.record_lines` has their form.

KEY is the vertex's id, VALUE is JSON: `{"id":7,"epoch":12,"model":"0123456789ab","embedding":"..."}`, with base64 of
little-endian float32 or a list of numbers (null where not finite). Characters outside ASCII are escaped as in JSON.
A deleted vertex is a tombstone with its epoch.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import orjson

from freshet.kernels.kernel import inner, kernel
from freshet.operators.record_lines import BLOCK_BYTES, LINE_END, TAB
from freshet.operators.sink.coalesce import Changes, TextIds

BASE64, LIST = "base64", "list"
_TAB, _LINE_END = ord(TAB), ord(LINE_END)
_ROWS_AT_ONCE = 4096
_ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_ID, _EPOCH = (np.frombuffer(text, np.uint8) for text in (b'{"id":', b',"epoch":'))
_NUMBER_BYTES = 20  # of an int64
_LISTED_BYTES = 16  # of a float32 in a list, with its comma
_ESCAPED = 6  # a byte of an id, where JSON escapes it
_FIXED_BYTES = 64  # names and brackets


@inner
def _put(out: np.ndarray, at: int, text: np.ndarray) -> int:
    for k in range(len(text)):
        out[at + k] = text[k]
    return at + len(text)


@inner
def _put_number(out: np.ndarray, at: int, number: int) -> int:
    rest = np.uint64(number)
    if number < 0:
        out[at] = 45  # -
        at += 1
        rest = ~rest + np.uint64(1)
    digits = 1
    power = rest // np.uint64(10)
    while power > 0:
        digits += 1
        power //= np.uint64(10)
    for k in range(digits):
        out[at + digits - 1 - k] = 48 + rest % np.uint64(10)
        rest //= np.uint64(10)
    return at + digits


@inner
def _put_base64(out: np.ndarray, at: int, data: np.ndarray, alphabet: np.ndarray) -> int:
    for k in range(0, len(data), 3):
        left = min(3, len(data) - k)
        word = np.uint32(data[k]) << np.uint32(16)
        if left > 1:
            word |= np.uint32(data[k + 1]) << np.uint32(8)
        if left > 2:
            word |= np.uint32(data[k + 2])
        out[at] = alphabet[(word >> np.uint32(18)) & np.uint32(63)]
        out[at + 1] = alphabet[(word >> np.uint32(12)) & np.uint32(63)]
        out[at + 2] = alphabet[(word >> np.uint32(6)) & np.uint32(63)] if left > 1 else 61  # =
        out[at + 3] = alphabet[word & np.uint32(63)] if left > 2 else 61
        at += 4
    return at


@inner
def _put_hex(out: np.ndarray, at: int, text: np.ndarray, digits: np.ndarray) -> int:
    for k in range(len(text)):
        out[at + 2 * k] = digits[text[k] >> 4]
        out[at + 2 * k + 1] = digits[text[k] & 15]
    return at + 2 * len(text)


@inner
def _put_escape(out: np.ndarray, at: int, unit: int, digits: np.ndarray) -> int:
    out[at], out[at + 1] = 92, 117  # \u
    for k in range(4):
        out[at + 2 + k] = digits[(unit >> (12 - 4 * k)) & 15]
    return at + 6


@inner
def _put_json(out: np.ndarray, at: int, text: np.ndarray, digits: np.ndarray) -> int:
    """A JSON string of valid UTF-8."""
    out[at] = 34  # "
    at += 1
    k = 0
    while k < len(text):
        byte = np.int64(text[k])
        if byte < 0x80:
            k += 1
            if byte == 34 or byte == 92:
                out[at], out[at + 1] = 92, byte
                at += 2
            elif byte < 32 or byte == 127:
                at = _put_escape(out, at, byte, digits)
            else:
                out[at] = byte
                at += 1
            continue
        more = 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3
        code = byte & (0x3F >> more)
        for j in range(1, more + 1):
            code = code << 6 | np.int64(text[k + j]) & 0x3F
        k += 1 + more
        if code > 0xFFFF:
            at = _put_escape(out, at, 0xD800 + ((code - 0x10000) >> 10), digits)
            code = 0xDC00 + ((code - 0x10000) & 0x3FF)
        at = _put_escape(out, at, code, digits)
    out[at] = 34
    return at + 1


@inner
def _is_plain(text: np.ndarray) -> bool:
    for byte in text:
        if byte < 32 or byte > 126:
            return False
    return len(text) > 0


@kernel
def _write(
    out: np.ndarray,
    numbers: np.ndarray,
    offsets: np.ndarray,
    texts: np.ndarray,
    epochs: np.ndarray,
    deleted: np.ndarray,
    raw: np.ndarray,
    listed: np.ndarray,
    bounds: np.ndarray,
    before: np.ndarray,
    fixed: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    ends: np.ndarray,
) -> None:
    """Write a line for each change, and where each ends.

    ids are `numbers`, or (where there are offsets) `texts`; vectors are the bytes `raw` of each row, or (where there
    are bounds) stretches of `listed`; `before` stands between epoch and vector.
    """
    alphabet, digits, id_text, epoch_text = fixed
    at = 0
    for i in range(len(epochs)):
        text = texts[offsets[i] : offsets[i + 1]] if len(offsets) else texts[:0]
        if len(offsets) == 0:
            at = _put_number(out, at, numbers[i])
        elif _is_plain(text):
            at = _put(out, at, text)
        else:
            out[at] = _TAB
            at = _put_hex(out, at + 1, text, digits)
        out[at] = _TAB
        at += 1
        if deleted[i]:
            out[at] = _TAB
            at = _put_number(out, at + 1, epochs[i])
        else:
            at = _put(out, at, id_text)
            at = _put_json(out, at, text, digits) if len(offsets) else _put_number(out, at, numbers[i])
            at = _put_number(out, _put(out, at, epoch_text), epochs[i])
            at = _put(out, at, before)
            if len(bounds):
                at = _put(out, at, listed[bounds[i, 0] : bounds[i, 1]])
            else:
                out[at] = 34
                at = _put_base64(out, at + 1, raw[i], alphabet)
                out[at] = 34
                at += 1
            out[at] = 125  # }
            at += 1
        out[at] = _LINE_END
        at += 1
        ends[i] = at


def record_bytes_max(width: int, form: str, model: str, id_bytes_max: int) -> int:
    """What the record of one vertex takes at most, key and value: `id_bytes_max` is its id's, as UTF-8 or digits."""
    vector = _LISTED_BYTES * width + 2 if form == LIST else 4 * -(-4 * width // 3) + 2
    text = _ESCAPED * id_bytes_max + 2  # in JSON
    return id_bytes_max + text + vector + len(orjson.dumps(model)) + _NUMBER_BYTES + _FIXED_BYTES


class Lines:
    """Writes changes as blocks of lines."""

    def __init__(self, model: str, form: str = BASE64) -> None:
        """`model` stands in every record; `form` is BASE64 or LIST."""
        if form not in (BASE64, LIST):
            msg = f"embedding format: got {form!r}, expected {BASE64} or {LIST}"
            raise ValueError(msg)
        self._list = form == LIST
        self._before = np.frombuffer(b',"model":' + orjson.dumps(model) + b',"embedding":', np.uint8)

    def blocks(self, changes: Changes) -> Iterator[bytes]:
        """The lines of the changes, in order, in blocks of about `BLOCK_BYTES` without a line end at the end."""
        for begin in range(0, len(changes), _ROWS_AT_ONCE):
            yield from self._cut(*self._lines(changes, slice(begin, begin + _ROWS_AT_ONCE)))

    def _lines(self, changes: Changes, some: slice) -> tuple[np.ndarray, np.ndarray]:
        epochs, deleted = changes.epochs[some], changes.deleted[some]
        n = len(epochs)
        if isinstance(changes.ids, TextIds):
            offsets = changes.ids.offsets[some.start : some.start + n + 1]
            texts = changes.ids.data[offsets[0] : offsets[-1]]
            numbers, offsets = _NO_NUMBERS, offsets - offsets[0]
            id_bytes = 8 * texts.size + 8 * n  # twice in hexadecimal as the key, six times where JSON escapes it
        else:
            numbers, offsets, texts = changes.ids[some], _NO_NUMBERS, _NO_BYTES
            id_bytes = 2 * _NUMBER_BYTES * n
        rows = np.ascontiguousarray(changes.rows[some], "<f4")
        if self._list:
            listed, bounds = _listed(rows)
            raw, vector_bytes = np.empty((n, 0), np.uint8), listed.size
        else:
            listed, bounds = _NO_BYTES, _NO_BOUNDS
            raw = rows.view(np.uint8)
            vector_bytes = n * (4 * -(-raw.shape[1] // 3) + 2)
        out = np.empty(id_bytes + vector_bytes + n * (len(self._before) + _NUMBER_BYTES + 32), np.uint8)
        ends = np.empty(n, np.int64)
        fixed = _ALPHABET, _HEX, _ID, _EPOCH
        _write(out, numbers, offsets, texts, epochs, deleted, raw, listed, bounds, self._before, fixed, ends)
        return out, ends

    @staticmethod
    def _cut(out: np.ndarray, ends: np.ndarray) -> Iterator[bytes]:
        begin = 0
        while begin < ends[-1]:
            last = max(int(np.searchsorted(ends, begin + BLOCK_BYTES, side="right")) - 1, 0)
            end = int(ends[last]) if ends[last] > begin else int(ends[last + 1])
            yield out[begin : end - 1].tobytes()
            begin = end


_NO_NUMBERS, _NO_BYTES, _NO_BOUNDS = np.empty(0, np.int64), np.empty(0, np.uint8), np.empty((0, 2), np.int64)


def _listed(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows as JSON lists in one text, and where each begins and ends."""
    # a copy, since kernels are compiled once, for writable arrays
    text = np.frombuffer(orjson.dumps(rows, option=orjson.OPT_SERIALIZE_NUMPY), np.uint8).copy()
    begins, ends = np.flatnonzero(text == ord("["))[1:], np.flatnonzero(text == ord("]"))[:-1] + 1
    return text, np.stack([begins, ends], axis=1)
