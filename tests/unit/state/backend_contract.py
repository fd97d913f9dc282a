"""What every backend must do; a body passes when a subclass with its `backend` fixture passes.

The methods need nothing of pytest: the Flink body runs them inside an operator, where its state can be read.
"""

from __future__ import annotations

import random

from state.backends import Backend


class BackendContract:
    """Each test gets a backend without entries."""

    def test_it_begins_empty(self, backend: Backend) -> None:
        assert list(backend.items()) == []

    def test_what_is_put_is_there(self, backend: Backend) -> None:
        backend.put("z/0@1", b"\x00\xff page")
        backend.put("meta@1", b"{}")
        assert sorted(backend.items()) == [("meta@1", b"{}"), ("z/0@1", b"\x00\xff page")]

    def test_the_last_value_counts(self, backend: Backend) -> None:
        for value in (b"old", b"new"):
            backend.put("sealed", value)
        assert list(backend.items()) == [("sealed", b"new")]

    def test_what_is_deleted_is_gone(self, backend: Backend) -> None:
        for key in ("a", "ab", "b"):
            backend.put(key, key.encode())
        backend.delete("a")
        assert sorted(backend.items()) == [("ab", b"ab"), ("b", b"b")]
        backend.put("a", b"again")
        assert sorted(backend.items()) == [("a", b"again"), ("ab", b"ab"), ("b", b"b")]

    def test_deleting_what_is_not_there_is_no_error(self, backend: Backend) -> None:
        backend.delete("nothing")
        backend.put("a", b"1")
        backend.delete("a")
        backend.delete("a")
        assert list(backend.items()) == []

    def test_a_value_may_be_empty_or_large(self, backend: Backend) -> None:
        page = bytes(range(256)) * 4096
        backend.put("empty", b"")
        backend.put("large", page)
        assert dict(backend.items()) == {"empty": b"", "large": page}

    def test_keys_may_hold_anything(self, backend: Backend) -> None:
        keys = ["é/0@1", "a|b", "|", "a b", "out.head/12@3", "\U0001f600"]
        for number, key in enumerate(keys):
            backend.put(key, bytes([number]))
        assert dict(backend.items()) == {key: bytes([number]) for number, key in enumerate(keys)}

    def test_entries_may_change_while_they_are_read(self, backend: Backend) -> None:
        for number in range(50):
            backend.put(f"page/{number}", b"x")
        for key, _ in list(backend.items()):
            backend.delete(key)
        assert list(backend.items()) == []

    def test_it_is_what_a_dict_is(self, backend: Backend) -> None:
        rng, model = random.Random(8), dict[str, bytes]()
        for step in range(400):
            key = f"k{rng.randrange(40)}"
            if rng.random() < 0.7:
                model[key] = backend_value = rng.randbytes(rng.randrange(30))
                backend.put(key, backend_value)
            else:
                model.pop(key, None)
                backend.delete(key)
            if step % 50 == 49:
                assert sorted(backend.items()) == sorted(model.items())
