from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from freshet.job.errors import UsageError
from freshet.job.machine.artifacts import Artifact, fetch, shown
from freshet.job.machine.ports import free_port

CONTENT = b"a jar"
JAR = Artifact("org.example.deep:thing:1.0", hashlib.sha256(CONTENT).hexdigest())
LIKE_MAVEN, FLAT = "org/example/deep/thing/1.0/thing-1.0.jar", "thing-1.0.jar"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FRESHET_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "jars"


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path.startswith("/closed/"):
            self.send_error(403)
        else:
            super().do_GET()


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[str]:
    """An HTTP server of the folder `mirror`."""
    (tmp_path / "mirror").mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(tmp_path / "mirror")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def put(folder: Path, place: str, content: bytes = CONTENT) -> None:
    (folder / place).parent.mkdir(parents=True, exist_ok=True)
    (folder / place).write_bytes(content)


@pytest.mark.parametrize("place", [LIKE_MAVEN, FLAT])
@pytest.mark.parametrize("form", ["folder", "file", "http"])
def test_a_jar_comes_from_the_mirror(
    place: str, form: str, mirror: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mirror"
    put(folder, place)
    given = {"folder": str(folder), "file": f"file://{folder}", "http": f"{mirror}/"}[form]
    monkeypatch.setenv("FRESHET_ARTIFACTS", given)
    assert fetch([JAR]) == [cache / FLAT]
    assert (cache / FLAT).read_bytes() == CONTENT


@pytest.mark.parametrize("form", ["folder", "http"])
def test_another_content_is_refused(
    form: str, mirror: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "mirror", FLAT, b"something else")
    monkeypatch.setenv("FRESHET_ARTIFACTS", mirror if form == "http" else str(tmp_path / "mirror"))
    with pytest.raises(UsageError, match=r"thing:1.0: got a file with the SHA-256 .*FRESHET_ARTIFACTS=.*another file"):
        fetch([JAR])
    assert list(cache.iterdir()) == []


def test_what_the_mirror_lacks_is_named(mirror: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for given in (mirror, str(tmp_path / "mirror")):
        monkeypatch.setenv("FRESHET_ARTIFACTS", given)
        with pytest.raises(UsageError) as caught:
            fetch([JAR])
        assert str(caught.value) == (
            f"FRESHET_ARTIFACTS={given}: has no {JAR.coordinate}; put {LIKE_MAVEN} or {FLAT} there, or unset "
            "FRESHET_ARTIFACTS"
        )


def test_a_mirror_that_does_not_answer_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = f"http://127.0.0.1:{free_port(0)}"
    monkeypatch.setenv("FRESHET_ARTIFACTS", given)
    with pytest.raises(UsageError, match=rf"^FRESHET_ARTIFACTS={given}: can't be reached \(.*refused.*\); check"):
        fetch([JAR])
    monkeypatch.setenv("FRESHET_ARTIFACTS", str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="there is no such folder"):
        fetch([JAR])


def test_a_mirror_that_refuses_is_named_without_its_password(mirror: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRESHET_ARTIFACTS", f"{mirror.replace('//', '//me:pa55@')}/closed")
    with pytest.raises(UsageError, match=rf"^FRESHET_ARTIFACTS={mirror}/closed: answers 403") as caught:
        fetch([JAR])
    assert "pa55" not in str(caught.value)
    assert shown("/a/folder") == "FRESHET_ARTIFACTS=/a/folder"
