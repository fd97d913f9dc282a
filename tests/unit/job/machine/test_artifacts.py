from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from freshet.job.machine.artifacts import (
    BROKER,
    CONNECTOR,
    S3,
    Artifact,
    ArtifactError,
    cache_folder,
    cached_jars,
    fetch,
    read_pins,
)

CONTENT = b"a jar"
JAR = Artifact("org.example:thing:1.0", hashlib.sha256(CONTENT).hexdigest())


class Maven:
    """Has one jar for everything, and counts who asks."""

    def __init__(self, content: bytes = CONTENT) -> None:
        self.content, self.asked = content, [""][:0]

    def __call__(self, coordinate: str, folder: Path) -> Path:
        self.asked.append(coordinate)
        path = folder / "download.jar"
        path.write_bytes(self.content)
        return path


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FRESHET_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FRESHET_ARTIFACTS", raising=False)
    return tmp_path / "cache" / "jars"


def test_the_pins_are_whole() -> None:
    for name in (CONNECTOR, BROKER, S3):
        roots, jars = read_pins(name)
        assert roots
        assert set(roots) <= {jar.coordinate for jar in jars}
        assert len({jar.file_name for jar in jars}) == len(jars)
        assert all(len(bytes.fromhex(jar.sha256)) == 32 for jar in jars)
    of_job, of_broker = (
        next(jar for jar in read_pins(name)[1] if jar.file_name.startswith("zstd-jni-")) for name in (CONNECTOR, BROKER)
    )
    assert of_job == of_broker, "no jar of Flink's has it, and topics are compressed by it: one jar for both"


def test_a_jar_is_fetched_once(cache: Path) -> None:
    maven = Maven()
    assert fetch([JAR], maven) == [cache / "thing-1.0.jar"]
    assert fetch([JAR], maven) == [cache / "thing-1.0.jar"]
    assert (cache / "thing-1.0.jar").read_bytes() == CONTENT
    assert maven.asked == [JAR.coordinate]
    assert [path.name for path in cache.iterdir()] == ["thing-1.0.jar"], "nothing half-done is left"


def test_a_changed_jar_is_fetched_again(cache: Path) -> None:
    fetch([JAR], Maven())
    (cache / "thing-1.0.jar").write_bytes(b"cut off")
    fetch([JAR], Maven())
    assert (cache / "thing-1.0.jar").read_bytes() == CONTENT


def test_another_content_is_refused(cache: Path) -> None:
    with pytest.raises(ArtifactError, match=r"org.example:thing:1.0: got a file with the SHA-256 .* was not used"):
        fetch([JAR], Maven(b"something else"))
    assert list(cache.iterdir()) == []


def test_without_a_network_the_error_says_what_to_do(cache: Path) -> None:
    def offline(coordinate: str, folder: Path) -> Path:
        raise RuntimeError("gave up") from OSError("no route to host")

    with pytest.raises(ArtifactError, match=r"no route to host.*copy thing-1.0.jar") as caught:
        fetch([JAR], offline)
    assert str(cache) in str(caught.value)


def test_a_cache_that_can_not_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FRESHET_CACHE", str(tmp_path / "file"))
    with pytest.raises(ArtifactError, match="set FRESHET_CACHE"):
        fetch([JAR], Maven())


def test_the_connector_is_looked_for_without_fetching() -> None:
    assert cached_jars(CONNECTOR) == cached_jars(S3) == []


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FRESHET_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/freshet/jars")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder() == Path("/home/someone/.cache/freshet/jars")
