"""What every backend must do; a body passes when a subclass with its `backend` fixture passes.

The methods need nothing of pytest: the Flink body runs them inside an operator, where its state can be read.
"""

from __future__ import annotations

import random

from tests.support.backend import Backend


def put(backend: Backend, key: str, value: bytes) -> None:
    backend.apply([(key, value)], [])


def delete(backend: Backend, key: str) -> None:
    backend.apply([], [key])


class BackendContract:
    """Each test gets a backend without entries."""

    def test_it_begins_empty(self, backend: Backend) -> None:
        assert list(backend.items()) == []

    def test_what_is_put_is_there(self, backend: Backend) -> None:
        put(backend, "z/0@1", b"\x00\xff page")
        put(backend, "meta@1", b"{}")
        assert sorted(backend.items()) == [("meta@1", b"{}"), ("z/0@1", b"\x00\xff page")]

    def test_the_last_value_counts(self, backend: Backend) -> None:
        for value in (b"old", b"new"):
            put(backend, "sealed", value)
        assert list(backend.items()) == [("sealed", b"new")]

    def test_what_is_deleted_is_gone(self, backend: Backend) -> None:
        for key in ("a", "ab", "b"):
            put(backend, key, key.encode())
        delete(backend, "a")
        assert sorted(backend.items()) == [("ab", b"ab"), ("b", b"b")]
        put(backend, "a", b"again")
        assert sorted(backend.items()) == [("a", b"again"), ("ab", b"ab"), ("b", b"b")]

    def test_entries_are_put_in_order_and_deleted_after_that(self, backend: Backend) -> None:
        backend.apply([], [])
        backend.apply([("a", b"1"), ("a", b"2"), ("b", b"3"), ("c", b"")], ["b", "nothing"])
        assert sorted(backend.items()) == [("a", b"2"), ("c", b"")]

    def test_deleting_what_is_not_there_is_no_error(self, backend: Backend) -> None:
        delete(backend, "nothing")
        put(backend, "a", b"1")
        delete(backend, "a")
        delete(backend, "a")
        assert list(backend.items()) == []

    def test_a_value_may_be_empty_or_large(self, backend: Backend) -> None:
        page = bytes(range(256)) * 4096
        put(backend, "empty", b"")
        put(backend, "large", page)
        assert dict(backend.items()) == {"empty": b"", "large": page}

    def test_keys_may_hold_anything(self, backend: Backend) -> None:
        keys = ["é/0@1", "a|b", "|", "a b", "out.head/12@3", "\U0001f600"]
        for number, key in enumerate(keys):
            put(backend, key, bytes([number]))
        assert dict(backend.items()) == {key: bytes([number]) for number, key in enumerate(keys)}

    def test_entries_may_change_while_they_are_read(self, backend: Backend) -> None:
        for number in range(50):
            put(backend, f"page/{number}", b"x")
        for key, _ in list(backend.items()):
            delete(backend, key)
        assert list(backend.items()) == []

    def test_it_is_what_a_dict_is(self, backend: Backend) -> None:
        rng, model = random.Random(8), dict[str, bytes]()
        for step in range(400):
            key = f"k{rng.randrange(40)}"
            if rng.random() < 0.7:
                model[key] = backend_value = rng.randbytes(rng.randrange(30))
                put(backend, key, backend_value)
            else:
                model.pop(key, None)
                delete(backend, key)
            if step % 50 == 49:
                assert sorted(backend.items()) == sorted(model.items())
