"""Files of the page as they are answered: from the package, by exact path, with their types and checksums."""

from __future__ import annotations

import gzip
import hashlib
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

SITE = Path(__file__).with_name("site")
ASSETS = "/assets/"
_DOCUMENTS = {"/": "index.html", "/docs": "docs.html"}
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
}
# Nothing from elsewhere, nothing inline, in no frame: what the page shows is data of others.
SECURITY = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}


class PageFile(NamedTuple):
    """A file, also compressed; `tag` is made of its content."""

    content: bytes
    zipped: bytes
    media_type: str
    tag: str

    def headers(self, tag: str) -> dict[str, str]:
        """Return the headers of an answer: browsers keep the file, and ask each time whether it has changed."""
        return {**SECURITY, "ETag": tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}


@lru_cache(maxsize=1)
def page_files() -> dict[str, PageFile]:
    """Return all files by the path under which they are answered; no other path is looked up in the file system."""
    found = {ASSETS + path.relative_to(SITE).as_posix(): path for path in SITE.rglob("*") if path.suffix in _TYPES}
    for path, name in _DOCUMENTS.items():
        found[path] = found.pop(ASSETS + name)
    return {path: _read(file) for path, file in sorted(found.items())}


def _read(path: Path) -> PageFile:
    content = path.read_bytes()
    tag = hashlib.sha256(content).hexdigest()[:32]
    return PageFile(content, gzip.compress(content, mtime=0), _TYPES[path.suffix], tag)
