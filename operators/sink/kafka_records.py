"""Changes as blocks of Kafka records; `operators.record_blocks` has their form.

The key is the vertex's id as text. The value is JSON, `{"id":7,"epoch":12,"model":"0123456789ab","embedding":"..."}`,
with base64 of little-endian float32 or a list of numbers (null where not finite), and characters outside ASCII escaped;
or it is binary, `BINARY_HEAD` and little-endian float32. A deleted vertex is a tombstone with its epoch.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import orjson

from freshet.kernels.kernel import inner, kernel
from freshet.operators.record_blocks import BINARY_HEAD, BINARY_VERSION, BLOCK_BYTES, HEAD
from freshet.operators.sink.coalesce import Changes, TextIds

BASE64, LIST, BINARY = FORMS = "base64", "list", "binary"
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
def _letter(sextet: np.uint8) -> np.uint8:
    """Return the letter of base64 by arithmetic alone, for vector instructions: A-Z, a-z, 0-9, + and /."""
    more = np.uint8(sextet > np.uint8(25)) * np.uint8(6) + np.uint8(sextet > np.uint8(62)) * np.uint8(3)
    less = np.uint8(sextet > np.uint8(51)) * np.uint8(75) + np.uint8(sextet > np.uint8(61)) * np.uint8(15)
    return np.uint8(np.uint8(np.uint8(sextet + np.uint8(65)) + np.uint8(more)) - np.uint8(less))


@inner
def _put_base64(out: np.ndarray, at: int, data: np.ndarray, alphabet: np.ndarray) -> int:
    """Write base64: sextets first, whose letters follow by arithmetic, in vector instructions."""
    whole = len(data) // 3
    text = out[at : at + 4 * whole]  # indices from 0 on, which need no look at their sign
    for k in range(whole):
        first, second, third = data[3 * k], data[3 * k + 1], data[3 * k + 2]
        text[4 * k] = first >> np.uint8(2)
        text[4 * k + 1] = np.uint8(np.uint8(first << np.uint8(4)) & np.uint8(48)) | np.uint8(second >> np.uint8(4))
        text[4 * k + 2] = np.uint8(np.uint8(second << np.uint8(2)) & np.uint8(60)) | np.uint8(third >> np.uint8(6))
        text[4 * k + 3] = np.uint8(third & np.uint8(63))
    for k in range(len(text)):
        text[k] = _letter(text[k])
    at += 4 * whole
    left = len(data) - 3 * whole
    if left:
        word = np.uint32(data[3 * whole]) << np.uint32(16)
        if left > 1:
            word |= np.uint32(data[3 * whole + 1]) << np.uint32(8)
        out[at] = alphabet[(word >> np.uint32(18)) & np.uint32(63)]
        out[at + 1] = alphabet[(word >> np.uint32(12)) & np.uint32(63)]
        out[at + 2] = alphabet[(word >> np.uint32(6)) & np.uint32(63)] if left > 1 else 61  # =
        out[at + 3] = 61
        at += 4
    return at


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
def _put_little(out: np.ndarray, at: int, number: int, size: int) -> int:
    """Write an integer of `size` bytes, little-endian."""
    for k in range(size):
        out[at + k] = (number >> (8 * k)) & 255
    return at + size


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
    is_binary: bool,
    fixed: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    ends: np.ndarray,
) -> None:
    """Write a record for each change, and where each ends.

    ids are `numbers`, or (where there are offsets) `texts`; vectors are the bytes `raw` of each row, or (where there
    are bounds) stretches of `listed`; `before` stands between epoch and vector in JSON, and before both in binary.
    """
    alphabet, digits, id_text, epoch_text = fixed
    at = 0
    for i in range(len(epochs)):
        begin = at
        text = texts[offsets[i] : offsets[i + 1]] if len(offsets) else texts[:0]
        at = begin + 16
        at = _put(out, at, text) if len(offsets) else _put_number(out, at, numbers[i])
        value = at
        if deleted[i]:
            pass
        elif is_binary:
            at = _put(out, at, before)
            at = _put_little(out, at, epochs[i], 8)
            at = _put(out, at, raw[i])
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
        _put_little(out, begin, value - begin - 16, 4)
        _put_little(out, begin + 4, -1 if deleted[i] else at - value, 4)
        _put_little(out, begin + 8, epochs[i] if deleted[i] else -1, 8)
        ends[i] = at


def record_bytes_max(width: int, form: str, model: str, id_bytes_max: int) -> int:
    """Return the largest size of a record of a vertex, key and value; `id_bytes_max`: of its id as UTF-8 or digits."""
    if form == BINARY:
        return id_bytes_max + BINARY_HEAD.size + 4 * width
    vector = _LISTED_BYTES * width + 2 if form == LIST else 4 * -(-4 * width // 3) + 2
    text = _ESCAPED * id_bytes_max + 2  # in JSON
    return id_bytes_max + text + vector + len(orjson.dumps(model)) + _NUMBER_BYTES + _FIXED_BYTES


class RecordBlocks:
    """Writes changes as blocks of records."""

    def __init__(self, model: str, form: str = BASE64) -> None:
        """`model` stands in every record (of the binary form: twelve hexadecimal digits); `form` is one of `FORMS`."""
        if form not in FORMS:
            msg = f"embedding format: got {form!r}, expected one of {', '.join(FORMS)}"
            raise ValueError(msg)
        self._form = form
        if form == BINARY:
            heads = [BINARY_HEAD.pack(BINARY_VERSION, bytes.fromhex(model), strings, 0)[:-8] for strings in (0, 1)]
        else:
            heads = [b',"model":' + orjson.dumps(model) + b',"embedding":'] * 2
        self._before = [np.frombuffer(head, np.uint8) for head in heads]  # of integer ids, and of strings

    def blocks(self, changes: Changes) -> Iterator[bytes]:
        """The records of the changes, in order, in blocks of about `BLOCK_BYTES`."""
        for begin in range(0, len(changes), _ROWS_AT_ONCE):
            yield from self._cut(*self._records(changes, slice(begin, begin + _ROWS_AT_ONCE)))

    def _records(self, changes: Changes, some: slice) -> tuple[np.ndarray, np.ndarray]:
        epochs, deleted = changes.epochs[some], changes.deleted[some]
        n = len(epochs)
        before = self._before[isinstance(changes.ids, TextIds)]
        if isinstance(changes.ids, TextIds):
            offsets = changes.ids.offsets[some.start : some.start + n + 1]
            texts = changes.ids.data[offsets[0] : offsets[-1]]
            numbers, offsets = _NO_NUMBERS, offsets - offsets[0]
            id_bytes = (1 + _ESCAPED) * texts.size + 2 * n  # as the key, and in JSON
        else:
            numbers, offsets, texts = changes.ids[some], _NO_NUMBERS, _NO_BYTES
            id_bytes = 2 * _NUMBER_BYTES * n
        rows = np.ascontiguousarray(changes.rows[some], "<f4")
        if self._form == LIST:
            listed, bounds = _listed(rows)
            raw, vector_bytes = np.empty((n, 0), np.uint8), listed.size
        else:
            listed, bounds = _NO_BYTES, _NO_BOUNDS
            raw = rows.view(np.uint8)
            vector_bytes = n * (4 * -(-raw.shape[1] // 3) + 2)
        out = np.empty(id_bytes + vector_bytes + n * (len(before) + _NUMBER_BYTES + HEAD.size + 16), np.uint8)
        ends = np.empty(n, np.int64)
        fixed = _ALPHABET, _HEX, _ID, _EPOCH
        _write(
            out,
            numbers,
            offsets,
            texts,
            epochs,
            deleted,
            raw,
            listed,
            bounds,
            before,
            self._form == BINARY,
            fixed,
            ends,
        )
        return out, ends

    @staticmethod
    def _cut(out: np.ndarray, ends: np.ndarray) -> Iterator[bytes]:
        begin = 0
        while begin < ends[-1]:
            last = max(int(np.searchsorted(ends, begin + BLOCK_BYTES, side="right")) - 1, 0)
            end = int(ends[last]) if ends[last] > begin else int(ends[last + 1])
            yield out[begin:end].tobytes()
            begin = end


_NO_NUMBERS, _NO_BYTES, _NO_BOUNDS = np.empty(0, np.int64), np.empty(0, np.uint8), np.empty((0, 2), np.int64)


def _listed(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows as JSON lists in one text, and where each begins and ends."""
    # a copy, since kernels are compiled once, for writable arrays
    text = np.frombuffer(orjson.dumps(rows, option=orjson.OPT_SERIALIZE_NUMPY), np.uint8).copy()
    begins, ends = np.flatnonzero(text == ord("["))[1:], np.flatnonzero(text == ord("]"))[:-1] + 1
    return text, np.stack([begins, ends], axis=1)
