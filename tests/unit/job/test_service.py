"""Service folders: which job serves, and what promote and rollback refuse."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest

from freshet.files.json_file import DamagedFileError, write_json
from freshet.job import cli
from freshet.job.errors import UsageError
from freshet.job.service.generations import CONTRACT, FILE, GENERATION, Contract, Generation, Service
from freshet.job.serving.feeds.service_feed import begun, kind_of, tables_of
from freshet.job.serving.promotion import promote, rollback
from tests.support.serving.hand_job import JOB_ID, HandJob


def job(out: Path, epochs: int = 1, kind: str = "int", name: str | None = None) -> HandJob:
    """A job that has read ten records in each epoch."""
    found = HandJob(out, kind, job_id=f"{JOB_ID[:-4]}{name or out.name:0>4.4}")
    for epoch in range(1, epochs + 1):
        found.apply(epoch, ({2: 1.0, 3: float(epoch)}, []), ({4: 3.0}, []))
    found.close()
    return found


def change(how: Any, *given: Any, wait_s: float = 0.0, force: bool = False) -> dict[str, Any]:
    made: dict[str, Any] = how(*given, wait_s=wait_s, force=force).as_json()
    return made


def test_a_service_begins_changes_over_and_goes_back(tmp_path: Path) -> None:
    for name in ("A", "B"):
        job(tmp_path / name)
    service = Service(tmp_path / "V")
    assert service.current() is None
    first = change(promote, service, tmp_path / "A")
    assert (first["generation"], first["from"], first["why"], first["readable"]) == (0, None, "promote", True)
    second = change(promote, service, tmp_path / "B")
    assert (second["generation"], second["from"], second["job"]) == (1, 0, str(tmp_path / "B"))
    back = change(rollback, service, None)
    assert (back["generation"], back["why"], back["job"]) == (2, "rollback", str(tmp_path / "A"))
    again = change(rollback, service, 1)
    assert (again["generation"], again["job"]) == (3, str(tmp_path / "B"))
    assert [one.generation for one in service.generations()] == [0, 1, 2, 3]
    assert service.generations()[3].base == 3 * GENERATION
    lines = [orjson.loads(line) for line in (tmp_path / "V" / FILE).read_bytes().splitlines()]
    assert [one["from"] for one in lines] == [None, 0, 1, 2]
    assert set(lines[0]) == {"generation", "job", "job_id", "model", "since_ms", "why", "from"}


def test_the_folder_of_the_first_job_may_go(tmp_path: Path) -> None:
    """What readers rely on is the service's own."""
    for name in ("A", "B", "C"):
        job(tmp_path / name)
    job(tmp_path / "texts", kind="string")
    service = Service(tmp_path / "V")
    for name in ("A", "B"):
        change(promote, service, tmp_path / name)
    shutil.rmtree(tmp_path / "A")
    with pytest.raises(UsageError, match="its ids are strings"):
        change(promote, service, tmp_path / "texts")
    assert change(promote, service, tmp_path / "C")["generation"] == 2
    assert tables_of(service, kind_of(service, None)) == service.tables
    with pytest.raises(UsageError, match=r"--kind user: .* leave --kind out"):
        tables_of(service, "user")
    generation, [found] = begun(service, {service.tables: None})
    assert (generation.generation, found.out) == (2, tmp_path / "C")
    (service.folder / CONTRACT).unlink()
    with pytest.raises(DamagedFileError, match=rf"{CONTRACT}: is not there; put it back"):
        tables_of(service, None)


def test_a_service_of_one_kind_goes_on_with_a_model_of_more(tmp_path: Path) -> None:
    service = Service(tmp_path / "V")
    service.begin(Contract(returned=["user"], id_kind="int", sources=[]))
    assert kind_of(service, None) == "user"
    assert tables_of(service, "user") == tables_of(service, None) == service.tables
    service.begin(Contract(returned=["user", "item"], id_kind="int", sources=[]))
    assert kind_of(service, None) is None
    assert tables_of(service, "item") == service.tables / "item"
    with pytest.raises(UsageError, match="name one of them by --kind"):
        tables_of(service, None)


def test_a_job_that_is_behind_is_not_promoted_but_by_force(tmp_path: Path) -> None:
    job(tmp_path / "A", epochs=3)
    job(tmp_path / "B", epochs=1)
    service = Service(tmp_path / "V")
    change(promote, service, tmp_path / "A")
    with pytest.raises(UsageError, match=r"behind.*events.jsonl:0 at 10, not 30"):
        change(promote, service, tmp_path / "B")
    assert len(service.generations()) == 1
    assert change(promote, service, tmp_path / "B", force=True)["generation"] == 1
    assert change(rollback, service, None)["generation"] == 2
    with pytest.raises(UsageError, match=r"behind|resume"):
        change(rollback, service, None)


def test_what_is_refused(tmp_path: Path) -> None:
    service = Service(tmp_path / "V")
    with pytest.raises(UsageError, match="no service"):
        change(rollback, service, None)
    with pytest.raises(UsageError, match="holds no job"):
        change(promote, service, tmp_path / "none")
    assert not service.folder.exists(), "nothing is written"
    job(tmp_path / "A")
    job(tmp_path / "texts", kind="string")
    change(promote, service, tmp_path / "A")
    for out, says in (("A", "serves already, as generation 0"), ("texts", "its ids are strings")):
        with pytest.raises(UsageError, match=says):
            change(promote, service, tmp_path / out)
    with pytest.raises(UsageError, match="no earlier job"):
        change(rollback, service, None)
    with pytest.raises(UsageError, match="no generation 7"):
        change(rollback, service, 7)
    with service.changing(), pytest.raises(UsageError, match="another command"):
        change(promote, service, tmp_path / "A")
    assert len(service.generations()) == 1


@pytest.mark.parametrize(
    "text", ["", "{}", "no json", '{"generation":1}', '{"generation":-1}', "\xff", '{"generation":0}\n{"generation":0}']
)
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_bytes(text.encode("latin-1"))
    with pytest.raises(DamagedFileError, match=f"{FILE}.*make a new service folder"):
        Service(tmp_path).generations()


def test_a_torn_file_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    """Also one that has lost whole lines, where a server's table shows a later generation."""
    for name in ("A", "B", "C"):
        job(tmp_path / name)
    service = Service(tmp_path / "V")
    for name in ("A", "B"):
        change(promote, service, tmp_path / name)
    file = tmp_path / "V" / FILE
    whole = file.read_bytes()
    for size in (len(whole) - 1, len(whole) - 9, len(whole) // 2):
        file.write_bytes(whole[:size])
        with pytest.raises(DamagedFileError, match=f"{FILE}: its last line is not complete; put it back"):
            change(promote, service, tmp_path / "C")
        assert file.read_bytes() == whole[:size]
    first = whole.splitlines(keepends=True)[0]
    file.write_bytes(first)
    service.tables.mkdir()
    write_json(service.tables / "table.json", {"path": str(tmp_path / "t"), "of": {"generation": 1}})
    with pytest.raises(UsageError, match=rf"{FILE}: it ends with generation 0, .* seen generation 1; put it back"):
        change(promote, service, tmp_path / "C")
    assert file.read_bytes() == first
    with pytest.raises(UsageError, match="ends with generation 0, and readers have seen generation 1"):
        begun(service, {service.tables: None})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("job", "O2"),
        ("job", "../O2"),
        ("job", "/O\0"),
        ("model", "../m"),
        ("job_id", ""),
        ("why", "x"),
        ("from", ""),
    ],
)
def test_fields_that_do_not_fit_are_named(tmp_path: Path, field: str, value: str) -> None:
    made = {
        "generation": 0,
        "job": "/O",
        "job_id": "a",
        "model": "b" * 64,
        "since_ms": 1,
        "why": "promote",
        "from": None,
    }
    (tmp_path / FILE).write_bytes(orjson.dumps(made) + b"\n")
    assert Service(tmp_path).generations()[0].out == Path("/O")
    (tmp_path / FILE).write_bytes(orjson.dumps(made | {field: value}) + b"\n")
    with pytest.raises(DamagedFileError, match=rf"{FILE}: line 1 is no generation: .*\({field}\); put it back"):
        Service(tmp_path).generations()


def test_a_folder_that_holds_another_job_by_now_serves_no_more(tmp_path: Path) -> None:
    for name in ("A", "B"):
        job(tmp_path / name)
    service = Service(tmp_path / "V")
    change(promote, service, tmp_path / "A")
    change(promote, service, tmp_path / "B")
    (tmp_path / "A").rename(tmp_path / "old")
    job(tmp_path / "A", name="C")
    with pytest.raises(UsageError, match=r"A: it holds the job .*, and generation 0 is of the job"):
        change(rollback, service, None)
    assert len(service.generations()) == 2


def test_generations_in_a_wrong_order_are_damage(tmp_path: Path) -> None:
    made = Generation(generation=1, job="/O", job_id="a", model="b" * 64, since_ms=1, why="promote", from_=0)
    (tmp_path / FILE).write_text(made.model_dump_json(by_alias=True) + "\n")
    with pytest.raises(DamagedFileError, match="from 0 on"):
        Service(tmp_path).generations()


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            cli.main([str(one) for one in arguments])
        return int(end.value.code or 0), *capsys.readouterr()

    for name in ("A", "B"):
        job(tmp_path / name)
    for given, number in (
        (("promote", tmp_path / "V", tmp_path / "A"), 0),
        (("promote", tmp_path / "V", tmp_path / "B"), 1),
        (("rollback", tmp_path / "V"), 2),
        (("rollback", "--to", "1", tmp_path / "V"), 3),
    ):
        code, out, _ = run(*given)
        assert code == 0
        assert orjson.loads(out)["generation"] == number
    assert run("promote", "--wait", "soon", tmp_path / "V", tmp_path / "A")[0] == 2
    code, _, err = run("promote", tmp_path / "V", tmp_path / "B")
    assert (code, "serves already" in err) == (2, True)
