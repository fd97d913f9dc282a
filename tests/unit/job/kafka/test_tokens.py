from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from freshet.job.errors import UsageError
from freshet.job.kafka.tokens import ClientCredentials, Tokens
from tests.support.kafka.secured import CLIENT_ID, CLIENT_SECRET, TokenServer


@pytest.fixture
def server() -> Iterator[TokenServer]:
    started = TokenServer(life_s=100.0)
    yield started
    started.close()


def test_a_token_is_used_until_most_of_its_life_is_over(server: TokenServer) -> None:
    now = 0.0
    credentials = ClientCredentials(f"{server.url}/token", CLIENT_ID, CLIENT_SECRET)

    class Clocked:
        def fetch(self) -> tuple[str, float]:
            return credentials.fetch()[0], now + 100

    tokens = Tokens(Clocked(), lambda: now)
    first, end = tokens.get()
    assert (end, first.count(".")) == (100, 2)
    now = 79.0
    assert tokens.get() == (first, 100)
    assert server.given == 1
    now = 81.0
    assert tokens.get()[1] == 181
    assert server.given == 2


def test_an_endpoint_that_is_away_for_a_while_is_passed_over(server: TokenServer) -> None:
    now, is_away = 0.0, False

    class Source:
        def fetch(self) -> tuple[str, float]:
            if is_away:
                raise UsageError("away")
            return "token", now + 100

    tokens = Tokens(Source(), lambda: now)
    assert tokens.get() == ("token", 100)
    now, is_away = 90.0, True
    assert tokens.get() == ("token", 100)
    now = 101.0
    with pytest.raises(UsageError, match="away"):
        tokens.get()


def test_what_goes_wrong_is_told_without_the_secret(server: TokenServer) -> None:
    credentials = ClientCredentials(f"{server.url}/token", CLIENT_ID, "hunter2")
    assert "hunter2" not in repr(credentials)
    with pytest.raises(UsageError, match=r"gives no token \(HTTP status 401\)") as caught:
        credentials.fetch()
    assert "hunter2" not in str(caught.value)
    with pytest.raises(UsageError, match="does not answer"):
        replace(credentials, url="http://127.0.0.1:1/token").fetch()


@pytest.mark.parametrize("text", [b"", b"no json", b"[]", b"{}", b'{"access_token": 7}', b'{"access_token": "a\\nb"}'])
def test_an_answer_without_a_token(text: bytes) -> None:
    with pytest.raises(UsageError, match="without an access_token"):
        ClientCredentials("http://x", "me", "secret").read(text)
