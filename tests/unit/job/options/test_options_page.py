"""docs/reference/options.md lists every option of `freshet run`."""

from pathlib import Path

from freshet.job.options.config_file import read_config_file
from freshet.job.options.flags import help_of
from freshet.job.options.marks import FILE
from freshet.job.options.run_config import option_fields

PAGE = Path(__file__).resolve().parents[4] / "docs" / "reference" / "options.md"


def table() -> str:
    """The options in the order of help; paste it into the page where this fails."""
    lines = ["| key | flag | meaning |", "|---|---|---|"]
    for name, (field, mark) in option_fields().items():
        flag = "" if mark.panel == FILE else "yes"
        lines.append(f"| `{name.replace('_', '-')}` | {flag} | {help_of(field)} |")
    return "\n".join(lines)


def test_the_page_lists_every_option() -> None:
    assert PAGE.read_text(encoding="utf-8").endswith(f"\n\n{table()}\n"), table()
    assert "(default: 1GiB)" in table()


def test_its_example_is_a_config_file(tmp_path: Path) -> None:
    example = PAGE.read_text(encoding="utf-8").split("```")[1]
    (tmp_path / "job.yaml").write_text(example)
    assert read_config_file(tmp_path / "job.yaml")["restarts"] == 3
