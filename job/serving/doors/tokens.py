"""Tokens for reads, and for all. Those in files are read again when the files change."""

from __future__ import annotations

import hmac
import os
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from freshet.job.console import say
from freshet.job.errors import UsageError
from freshet.job.serving.doors.access import Access
from freshet.job.serving.protocol.token_values import TokenError, is_token_file, read_token_file

_LOOK_S = 0.25
_SETTLED_S = 2.0  # a file that was written just now may be written again without another time


class GivenToken(NamedTuple):
    """Tokens of an option; plain data, for a process of its own. `tokens`: those that were read last."""

    option: str
    right: str
    value: str
    is_file: bool
    tokens: tuple[str, ...]

    @staticmethod
    def of(option: str, right: Access, value: str) -> GivenToken:
        """Return the source that a value of an option is.

        Raises: UsageError for a file that is empty or can't be read.
        """
        try:
            is_file = is_token_file(value)
            tokens = read_token_file(value) if is_file else (value,)
        except TokenError as error:
            msg = f"{option} {error}"
            raise UsageError(msg) from error
        if not is_file and value.startswith(("/", "./", "../", "~/")):  # not shown: it may be a token
            say(f"{option}: the value begins like a path, and no file is there; it is the token itself", "warning")
        return GivenToken(option, right.value, value, is_file, tokens)


class ServerTokens:
    """The tokens of a server; safe for threads."""

    def __init__(self, sources: Sequence[GivenToken] = ()) -> None:
        self._files = [_TokenFile(one) for one in sources if one.is_file]
        self._given = [one for one in sources if not one.is_file]
        self._stop = threading.Event()
        self._rights: list[tuple[bytes, Access]] = []
        self._gather()

    @staticmethod
    def of(token: str | ServerTokens | None) -> ServerTokens:
        """Return the tokens where one token is for all, or none is required."""
        if isinstance(token, ServerTokens):
            return token
        return ServerTokens([GivenToken("--token", Access.ADMIN.value, token, False, (token,))] if token else [])

    @property
    def required(self) -> bool:
        """True if a request has to bear a token."""
        return bool(self._files or self._given)

    @property
    def sources(self) -> tuple[GivenToken, ...]:
        """Options that give them, with the tokens that hold now."""
        return (*self._given, *(one.source for one in self._files))

    def right_of(self, authorization: bytes | None) -> Access | None:
        """Return the right that the header `Authorization` gives; None: no known token."""
        if not self.required:
            return Access.ADMIN
        scheme, _, token = (authorization or b"").strip().partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        token, found = token.strip(), None
        for known, right in self._rights:
            if hmac.compare_digest(token, known) and found is not Access.ADMIN:
                found = right
        return found

    def watch(self) -> None:
        """Look at the files from now on, on a thread, until `stop`."""
        if self._files:
            threading.Thread(target=self._watch, name="freshet-tokens", daemon=True).start()

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()

    def look(self) -> None:
        """Read the files again that have changed; one that gives no token leaves its former ones, and that is said."""
        if any([one.look() for one in self._files]):
            self._gather()

    def _watch(self) -> None:
        while not self._stop.wait(_LOOK_S):
            self.look()

    def _gather(self) -> None:
        self._rights = [(token.encode(), Access(one.right)) for one in self.sources for token in one.tokens]


class _TokenFile:
    """A file of tokens, and what was last read of it."""

    def __init__(self, source: GivenToken) -> None:
        self.source = source
        self._seen: tuple[int, ...] | None = None  # the first look reads it, as another process may have done before
        self._wrong = ""

    def look(self) -> bool:
        """Read it if it may have changed; return whether its tokens have."""
        try:
            stat = os.stat(self.source.value)
            seen = (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_size)
            if seen == self._seen:
                return False
            tokens = read_token_file(self.source.value)
            self._seen = seen if time.time() - stat.st_mtime > _SETTLED_S else None
        except OSError as error:
            return self._keep(f"{self.source.value}: can't be read: {error.strerror}")
        except TokenError as error:
            return self._keep(str(error))
        if self._wrong:
            self._wrong = ""
            say(f"{self.source.option} {self.source.value}: it is read again")
        if tokens == self.source.tokens:
            return False
        self.source = self.source._replace(tokens=tokens)
        say(f"{self.source.option} {self.source.value}: the tokens have changed, and are {len(tokens)} now")
        return True

    def _keep(self, why: str) -> bool:
        self._seen = None
        if why != self._wrong:
            self._wrong = why
            say(f"{self.source.option} {why}; the tokens before it hold until it is right", "warning")
        return False
