import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from freshet.state.block_columns import EVENTS, ROWS, SYNC, TOPOLOGY
from freshet.state.codec import (
    FORMAT_VERSION,
    Header,
    UnknownFormatError,
    decode,
    encode,
    read_header,
    seal,
    view,
    views,
)

DTYPES = ["i1", "u1", "i2", "i4", "i8", "f4", "f8"]
NAMES = st.text("abcdefghijklmnopqrstuvwxyz_0", min_size=1, max_size=16)
ARRAYS = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=5))
)
HEADERS = st.builds(
    Header,
    kind=st.integers(0, 255),
    epoch=st.integers(-(2**63), 2**63 - 1),
    layer=st.integers(0, 255),
    source=st.integers(-(2**15), 2**15 - 1),
    flags=st.integers(0, 255),
)


@given(header=HEADERS, columns=st.dictionaries(NAMES, ARRAYS, max_size=6))
def test_what_is_encoded_comes_back(header: Header, columns: dict[str, np.ndarray]) -> None:
    data = encode(header, columns)
    block = decode(data)
    assert block.header == header == read_header(data)
    assert set(block.columns) == {name for name, column in columns.items() if column.size}
    for name, column in block.columns.items():
        assert column.dtype == columns[name].dtype
        assert column.shape == columns[name].shape
        assert column.tobytes() == columns[name].tobytes()


@given(header=HEADERS, columns=st.dictionaries(NAMES, ARRAYS, max_size=6))
def test_a_sealed_block_is_what_decoding_its_bytes_would_give(header: Header, columns: dict[str, np.ndarray]) -> None:
    data = encode(header, columns)
    decoded, sealed = decode(data), seal(header, columns)
    assert sealed.header == header
    assert sealed.nbytes == len(data)
    assert sealed.columns.keys() == decoded.columns.keys()
    for name, column in sealed.columns.items():
        assert column.tobytes() == decoded.columns[name].tobytes()
        assert column.flags.c_contiguous
        assert not column.flags.writeable


def test_columns_stand_at_multiples_of_eight_and_are_not_copied() -> None:
    data = encode(Header(SYNC), {"flags": np.ones(3, "u1"), "key": np.arange(4), "row": np.ones((2, 3), "f4")})
    raw = np.frombuffer(data, np.uint8)
    for column in decode(data).columns.values():
        assert np.shares_memory(column, raw)
        assert (column.ctypes.data - raw.ctypes.data) % 8 == 0
        assert not column.flags.writeable


def test_a_slice_of_a_column_is_encoded_as_it_reads() -> None:
    square = np.arange(16, dtype="f4").reshape(4, 4)
    block = decode(encode(Header(ROWS), {"row": square[::2, 1:3]}))
    assert block.columns["row"].tolist() == [[1, 2], [9, 10]]


def test_a_column_that_was_empty_reads_as_absent() -> None:
    block = decode(encode(Header(TOPOLOGY), {"m_slot": np.empty(0, "i4")}))
    assert "m_slot" not in block.columns
    assert block.get("m_slot").dtype == np.int32
    assert block.get("m_slot").size == 0


def test_the_layout_is_what_the_module_says() -> None:
    """A saved block must read the same for ever: these bytes are format version 1."""
    data = encode(Header(EVENTS, epoch=7, layer=2, source=-1, flags=3), {"w": np.array([1, -1], "<i2")})
    assert data[:24].hex() == "4642010502 03 ffff 0700000000000000 01000000 00000000".replace(" ", "")
    assert data[24:56].hex() == "77" + "00" * 15 + "68 01 0000 00000000 0200000000000000".replace(" ", "")
    assert data[56:].hex() == "0100ffff" + "00" * 4


def test_another_format_version_is_refused_by_version() -> None:
    data = bytearray(encode(Header(ROWS), {"key": np.arange(3)}))
    data[2] = FORMAT_VERSION + 1
    for read in (decode, read_header):
        with pytest.raises(UnknownFormatError, match=rf"version {FORMAT_VERSION + 1} .* reads {FORMAT_VERSION}"):
            read(bytes(data))


def test_what_is_no_block_is_refused() -> None:
    with pytest.raises(UnknownFormatError, match="magic"):
        decode(b"{" * 64)


def test_a_name_too_long_is_refused() -> None:
    assert list(decode(encode(Header(ROWS), {"k" * 16: np.arange(3)})).columns) == ["k" * 16]
    with pytest.raises(ValueError, match="at most 16 bytes"):
        encode(Header(ROWS), {"k" * 17: np.arange(3)})


def test_a_dtype_without_a_code_is_refused() -> None:
    with pytest.raises(KeyError):
        encode(Header(ROWS), {"key": np.arange(3, dtype="u8")})


def test_a_section_of_a_block_reads_as_a_block_of_its_own() -> None:
    columns = {"ctl": np.arange(8), "k0.m_slot": np.array([1], np.int32), "k1.m_slot": np.array([2, 3], np.int32)}
    block = decode(encode(Header(1, 5), {**columns, "r11.add_src": np.array([4], np.int32)}))
    found = views(block)
    assert {prefix: list(one.columns) for prefix, one in found.items()} == {
        "": ["ctl"],
        "k0.": ["m_slot"],
        "k1.": ["m_slot"],
        "r11.": ["add_src"],
    }
    assert (found["k1."].get("m_slot").tolist(), found["k1."].header) == ([2, 3], block.header)
    assert view(block, "k1.").columns.keys() == {"m_slot"} and not view(block, "k7.").columns
    assert view(block, "").columns.keys() == block.columns.keys(), "a block of one kind has no prefix"
    assert (block.get("k7.c_degree").dtype, block.get("r3.add_w").size) == (np.float64, 0)
    for name in ("k7.nothing", "nothing", "."):
        with pytest.raises(KeyError):
            block.get(name)
