"""The page's files over HTTP: types, checksums, what browsers are told, and paths that name none of them."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from freshet.job.serving.page.files import SITE, page_files
from tests.support.serving.served import Served

VENDOR = SITE / "vendor"
OURS = sorted(path for path in SITE.rglob("*") if path.suffix in (".js", ".css", ".html") and path.parent != VENDOR)
LINES_MAX = 400


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    one = Served(tmp_path_factory.mktemp("page") / "O", "int", token="secret")
    yield one
    one.close()


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/docs", "text/html; charset=utf-8"),
        ("/assets/style.css", "text/css; charset=utf-8"),
        ("/assets/js/main.js", "text/javascript; charset=utf-8"),
        ("/assets/vendor/uPlot.iife.min.js", "text/javascript; charset=utf-8"),
        ("/assets/icon.svg", "image/svg+xml"),
        ("/assets/vendor/htm.LICENSE.txt", "text/plain; charset=utf-8"),
    ],
)
def test_a_file_needs_no_token_and_says_what_it_is(served: Served, path: str, media_type: str) -> None:
    answer = served.http.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, media_type)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'self';")
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    head = served.http.head(path)
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", answer.headers["etag"])


def test_a_file_that_has_not_changed_is_not_sent_again(served: Served) -> None:
    first = served.http.get("/assets/js/main.js")
    assert first.headers["content-encoding"] == "gzip"
    tag = first.headers["etag"]
    assert first.headers["cache-control"] == "no-cache"
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = served.http.get("/assets/js/main.js", headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert served.http.get("/assets/js/main.js", headers={"If-None-Match": '"other"'}).status_code == 200
    plain = served.http.get("/assets/js/main.js", headers={"Accept-Encoding": "identity"})
    assert plain.headers["etag"] != tag
    assert "content-encoding" not in plain.headers
    assert plain.content == first.content == (SITE / "js" / "main.js").read_bytes()


@pytest.mark.parametrize(
    "path",
    [
        "/assets/..%2f..%2fpyproject.toml",
        "/assets/%2e%2e/__init__.py",
        "/assets/%2e%2e%2f%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/assets/js/..%2findex.html",
        "/assets/",
        "/assets/js",
        "/assets/files.py",
        "/assets/index.html",
        "/assets//etc/passwd",
        "/assets/style.css%00",
    ],
)
def test_no_other_path_is_a_file(served: Served, path: str) -> None:
    answer = served.http.get(path, headers={"Authorization": "Bearer secret"})
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("path", ["/assets/../../..", "/assets/../files.py", "/assets/js/../index.html"])
def test_dots_as_a_client_may_send_them(served: Served, path: str) -> None:
    """Libraries leave dots out of a path before they send it."""
    seen: list[str] = []

    async def app(scope, receive, send):  # type: ignore[no-untyped-def]
        seen.append(path)
        await served.http.app({**scope, "path": path, "raw_path": path.encode()}, receive, send)

    answer = TestClient(app).get("/", headers={"Authorization": "Bearer secret"})
    assert (answer.status_code, seen) == (404, [path])


def test_libraries_are_the_published_files() -> None:
    told = json.loads((VENDOR / "versions.json").read_text())["files"]
    assert told.keys() == {path.name for path in VENDOR.iterdir()} - {"versions.json"}
    for name, one in told.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == one["sha256"], name
        assert re.fullmatch(r"[a-z]+ \d+\.\d+\.\d+", one["package"])
    for name in ("uPlot", "htm", "preact"):
        assert (VENDOR / f"{name}.LICENSE.txt").stat().st_size > 1000


def test_the_page_is_small() -> None:
    assert sum(len(file.zipped) for file in page_files().values()) < 100_000
    assert all(gzip.decompress(file.zipped) == file.content for file in page_files().values())


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.relative_to(SITE).as_posix())
def test_files_of_ours_load_nothing_from_elsewhere_and_have_nothing_inline(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= LINES_MAX
    found = [url for url in re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}", text) if "w3.org" not in url]
    assert not found
    assert "innerHTML" not in text
    assert not re.search(r"(local|session)Storage|document\.cookie|indexedDB", text)
    if path.suffix == ".html":
        assert not re.search(r"<style|<script(?![^>]*\ssrc=)|\sstyle=|\son[a-z]+=", text)
    if path.suffix == ".js":
        assert not re.search(r"\beval\(|new Function|\sstyle=\$?[\"{]", text)


def test_every_module_and_file_that_is_named_is_there() -> None:
    for path in (SITE / "js").glob("*.js"):
        for name in re.findall(r'from "(\.[^"]+)"', path.read_text()):
            assert (path.parent / name).is_file(), (path.name, name)
    for name in ("index.html", "docs.html"):
        for url in re.findall(r'(?:src|href)="(assets/[^"]+)"', (SITE / name).read_text()):
            assert f"/{url}" in page_files()
