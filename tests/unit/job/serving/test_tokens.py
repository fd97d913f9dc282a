"""ServerTokens for reads and for all, as they are or in files, which are read again when they change."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from freshet.job.errors import UsageError
from freshet.job.serving.doors.access import Access
from freshet.job.serving.doors.http_front import Front
from freshet.job.serving.doors.tokens import GivenToken, ServerTokens
from freshet.job.serving.feeds.feed import ServeOptions
from freshet.job.serving.protocol.token_values import TokenError, token_to_send
from freshet.job.serving.server import check_token, token_sources

READ, ADMIN = Access.READ, Access.ADMIN


def of(**given: str) -> ServerTokens:
    return ServerTokens(token_sources(ServeOptions(Path("O/tables"), **given)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("header", "right"),
    [
        (b"Bearer all", ADMIN),
        (b"bearer all", ADMIN),
        (b"BEARER   all ", ADMIN),
        (b"Bearer reads", READ),
        (b"Bearer admins", ADMIN),
        (b"Bearer both", ADMIN),
        (b"Bearer other", None),
        (b"Bearer", None),
        (b"Bearer ", None),
        (b"Basic all", None),
        (b"all", None),
        (b"Bearer all all", None),
        (b"\xff\xfe all", None),
        (b"", None),
        (None, None),
    ],
)
def test_the_right_of_a_token(header: bytes | None, right: Access | None, tmp_path: Path) -> None:
    (file := tmp_path / "reads").write_text("reads\n\n  both \n")
    tokens = of(token="all", read_token=str(file), admin_token="both")
    assert of(token="all", admin_token="admins", read_token="reads").right_of(header) in (right, ADMIN, None)
    expected = None if header == b"Bearer admins" else right
    assert tokens.right_of(header) is expected


def test_without_a_token_all_may_do_all() -> None:
    assert of().right_of(None) is ADMIN and not of().required


@pytest.mark.parametrize("name", ["token", "read_token", "admin_token"])
@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "the file is empty"),
        (b"\n  \n", "the file is empty"),
        (b"one two\n", "line 1: expected one token"),
        (b"one\n\xff\xfe\n", "line 2: expected one token"),
        (b"x" * 70_000, "of at most 65,536 bytes"),
        (None, "can't be read"),
    ],
)
def test_files_that_give_none_are_refused_by_name(name: str, content: bytes | None, why: str, tmp_path: Path) -> None:
    file = tmp_path / "t"
    file.write_bytes(b"x" if content is None else content)
    if content is None:
        file.chmod(0)
        if os.access(file, os.R_OK):
            pytest.skip("this user may read any file")
    with pytest.raises(UsageError, match=f"^--{name.replace('_', '-')} or FRESHET_.*{file}: .*{why}"):
        of(**{name: str(file)})


def test_a_folder_is_no_token(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"{tmp_path}: expected a token, or a file"):
        of(token=str(tmp_path))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="which can be read again"):
        of(read_token=str(tmp_path / "pipe"))


@pytest.mark.parametrize("value", ["x" * 5000, "a\0b", "/no/such/file", "7"])
def test_any_other_value_is_the_token(value: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert of(token=value).right_of(b"Bearer " + value.encode()) is ADMIN
    assert ("begins like a path" in capfd.readouterr().err) == value.startswith("/")


def test_tokens_change_with_their_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (file := tmp_path / "t").write_text("one\n")
    tokens = of(token=str(file))

    def right(token: str) -> Access | None:
        tokens.look()
        return tokens.right_of(f"Bearer {token}".encode())

    assert right("one") is ADMIN
    file.write_text("two\nthree\n")
    assert (right("one"), right("two"), right("three")) == (None, ADMIN, ADMIN)
    for break_it in (lambda: file.write_text(""), lambda: file.write_text("a b"), file.unlink):
        break_it()
        for _ in range(3):
            assert (right("two"), right("")) == (ADMIN, None)
    said = capfd.readouterr().err
    assert [said.count(f"{file}: {why}") for why in ("the file is empty", "line 1", "can't be read")] == [1, 1, 1]
    (other := tmp_path / "other").write_text("four")
    other.rename(file)  # as Kubernetes and careful people replace a file
    assert (right("two"), right("four")) == (None, ADMIN)
    assert "it is read again" in capfd.readouterr().err
    assert tokens.sources[0].tokens == ("four",)


def test_a_process_that_starts_while_the_file_is_wrong_has_the_last_tokens(tmp_path: Path) -> None:
    (file := tmp_path / "t").write_text("one\n")
    first = of(read_token=str(file))
    file.write_text("")
    second = ServerTokens(first.sources)
    second.look()
    assert second.right_of(b"Bearer one") is READ


def test_a_thread_looks(tmp_path: Path) -> None:
    (file := tmp_path / "t").write_text("one\n")
    tokens = of(token=str(file))
    tokens.watch()
    try:
        file.write_text("two\n")
        for _ in range(1000):
            if tokens.right_of(b"Bearer two"):
                break
            __import__("time").sleep(0.02)
        assert tokens.right_of(b"Bearer one") is None
    finally:
        tokens.stop()


def test_what_a_client_sends(tmp_path: Path) -> None:
    (file := tmp_path / "t").write_text("\none\ntwo\n")
    assert (token_to_send(str(file)), token_to_send("x"), token_to_send(None)) == ("one", "x", None)
    file.write_text("")
    with pytest.raises(TokenError, match=f"^{file}: the file is empty"):
        token_to_send(str(file))


def test_any_of_them_lets_a_server_listen_elsewhere() -> None:
    for name in ("token", "read_token", "admin_token"):
        options = ServeOptions(Path("O/tables"), "0.0.0.0", **{name: "x"})  # type: ignore[arg-type]
        check_token(options)
        with pytest.raises(UsageError, match=f"a token, of --{name.replace('_', '-')} or FRESHET_.*; leave one"):
            check_token(ServeOptions(Path("O/tables"), "0.0.0.0", without_token=True, **{name: "x"}))  # type: ignore[arg-type]


async def behind(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize(
    ("path", "statuses"),
    [
        ("/", (200, 200, 200)),
        ("/docs", (200, 200, 200)),
        ("/assets/app.js", (200, 200, 200)),
        ("/embeddings/7", (401, 200, 200)),
        ("/v1/embeddings/7", (401, 200, 200)),
        ("/v1/rejected", (401, 403, 200)),
        ("/v1/v1/docs", (401, 200, 200)),
        ("/assets", (401, 200, 200)),
        ("/no-such-path", (401, 200, 200)),
    ],
)
def test_what_a_right_is_for(path: str, statuses: tuple[int, ...]) -> None:
    from types import SimpleNamespace

    from freshet.job.serving.bounds.budget import Budget

    tokens = ServerTokens([GivenToken("a", "read", "reads", False, ("reads",)), *ServerTokens.of("all").sources])
    health: Any = SimpleNamespace(budget=Budget())
    client = TestClient(Front(health, tokens, behind))
    found = []
    for token in (None, "reads", "all"):
        answer = client.get(path, headers={"authorization": f"Bearer {token}"} if token else {})
        found.append(answer.status_code)
        if answer.status_code == 401:
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.json()["kind"] == "unauthorized"
        if answer.status_code == 403:
            assert answer.json()["kind"] == "forbidden"
    assert tuple(found) == statuses
