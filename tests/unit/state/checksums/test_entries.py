"""Entries of keyed state with their checksums: what was written comes back, and what is damaged does not."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from freshet.files.json_file import DamagedFileError
from freshet.state.checksums.entries import SEALED, SealedEntries
from freshet.state.sweep import Mutations

LARGE = bytes(range(256)) * 20


class Stored(dict[str, bytes]):
    """What a backend holds of a part."""

    def apply(self, changes: Mutations) -> None:
        self.update(changes.puts)
        for key in changes.deletes:
            self.pop(key, None)


def opened(stored: Mapping[str, bytes], part: str = "storage1-0") -> dict[str, bytes]:
    return dict(SealedEntries(part).opened(list(stored.items())))


def written() -> Stored:
    sealed, stored = SealedEntries("storage1-0"), Stored()
    assert list(sealed.opened([])) == []
    stored.apply(
        sealed.seal(Mutations([("format", b"2"), ("x/0@1", b"page zero"), ("x/1@1", LARGE), ("x/7@1", LARGE)]))
    )
    stored.apply(sealed.seal(Mutations([("x/0@2", b"page zero again"), ("x/1@1", b"")], ["x/0@1", "nothing"])))
    return stored


def test_what_was_written_comes_back() -> None:
    stored = written()
    assert opened(stored) == {"format": b"2", "x/0@2": b"page zero again", "x/1@1": b"", "x/7@1": LARGE}
    assert set(stored) == {"format#", "x/0@2#", "x/1@1#", "x/7@1#b4968c98", SEALED}
    assert stored["x/7@1#b4968c98"] is LARGE, "not copied"


def test_a_second_attempt_goes_on_with_it() -> None:
    stored, sealed = written(), SealedEntries("storage1-0")
    assert len(list(sealed.opened(stored.items()))) == 4
    stored.apply(sealed.seal(Mutations([("x/2@3", b"more")], ["format"])))
    assert opened(stored) == {"x/0@2": b"page zero again", "x/1@1": b"", "x/2@3": b"more", "x/7@1": LARGE}
    assert not sealed.seal(Mutations()).puts, "nothing has changed"


@pytest.mark.parametrize("seed", range(200))
def test_no_flipped_bit_of_a_key_or_value_is_taken(seed: int) -> None:
    stored, draw = list(written().items()), random.Random(seed)
    place = draw.randrange(len(stored))
    sides = [bytearray(stored[place][0].encode()), bytearray(stored[place][1])]
    side = sides[draw.randrange(2) if sides[1] else 0]
    for at in draw.sample(range(8 * len(side)), 3):
        side[at // 8] ^= 1 << at % 8
    stored[place] = (sides[0].decode("latin-1"), bytes(sides[1]))
    with pytest.raises(DamagedFileError, match="storage1-0"):
        dict(SealedEntries("storage1-0").opened(stored))


@pytest.mark.parametrize("key", ["x/0@2#", "format#", SEALED])
def test_no_lost_entry_goes_unnoticed(key: str) -> None:
    stored = written()
    del stored[key]
    with pytest.raises(DamagedFileError, match="which are not those that were written"):
        opened(stored)


def test_the_last_of_several_changes_of_an_entry_holds() -> None:
    """A commit of the local runtime may have those of several epochs."""
    other = LARGE[::-1]
    stored, sealed = Stored(), SealedEntries("storage1-0")
    assert list(sealed.opened([])) == []
    stored.apply(sealed.seal(Mutations([("a", LARGE), ("b", LARGE), ("c", b"1")])))
    stored.apply(sealed.seal(Mutations([("a", other), ("a", LARGE), ("b", b""), ("b", other), ("c", LARGE)], ["c"])))
    assert opened(stored) == {"a": LARGE, "b": other}
    assert len(stored) == 3


def test_an_older_entry_or_one_of_another_part_is_not_taken() -> None:
    before, stored = written(), written()
    sealed = SealedEntries("storage1-0")
    list(sealed.opened(stored.items()))
    stored.apply(sealed.seal(Mutations([("x/1@1", b"newer")])))
    with pytest.raises(DamagedFileError):
        opened(stored | {"x/1@1#": before["x/1@1#"]})
    with pytest.raises(DamagedFileError, match="storage1-1"):
        opened(stored, part="storage1-1")


def test_entries_of_a_version_without_checksums_are_taken_and_get_them_when_written() -> None:
    old = {"format": b"2", "x/0@1": b"page", "x/1@1": b"other page"}
    assert opened(old) == old
    sealed, stored = SealedEntries("storage1-0"), Stored(old)
    list(sealed.opened(stored.items()))
    stored.apply(sealed.seal(Mutations([("x/0@1", b"page, again"), ("x/2@1", b"new")], ["x/1@1"])))
    assert set(stored) == {"format", "x/0@1#", "x/2@1#", SEALED}
    assert opened(stored) == {"format": b"2", "x/0@1": b"page, again", "x/2@1": b"new"}
    with pytest.raises(DamagedFileError):
        opened({"format": b"2", "x/0@1": b"one that lost its mark"} | {SEALED: stored[SEALED]})
