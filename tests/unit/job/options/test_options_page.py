"""docs/reference/options.md lists every option of `freshet run`."""

from pathlib import Path

from freshet.job.options.config_file import read_config_file
from freshet.job.options.epoch_options import EpochOptions
from freshet.job.options.flags import help_of
from freshet.job.options.input_options import GraphOptions, InputOptions
from freshet.job.options.marks import FILE, Options
from freshet.job.options.output_options import OutputOptions
from freshet.job.options.partitioning_options import PartitioningOptions
from freshet.job.options.run_config import option_fields
from freshet.job.options.runtime_options import FaultOptions, RuntimeOptions

PAGE = Path(__file__).resolve().parents[4] / "docs" / "reference" / "options.md"
HEADINGS: dict[str, type[Options]] = {
    "Model and input": InputOptions,
    "Output": OutputOptions,
    "Graph": GraphOptions,
    "Runtime": RuntimeOptions,
    "Parts": PartitioningOptions,
    "Epochs": EpochOptions,
    "Failures and resuming": FaultOptions,
}


def tables() -> str:
    """The options by their classes, in the order of help; paste it into the page where this fails."""
    lines, options = list[str](), option_fields()
    for heading, group in HEADINGS.items():
        lines += [f"## {heading}", "", "| key | flag | meaning |", "|---|---|---|"]
        for name in [one.alias or name for name, one in group.model_fields.items()]:
            field, mark = options.pop(name)
            flag = "" if mark.panel == FILE else "yes"
            lines.append(f"| `{name.replace('_', '-')}` | {flag} | {help_of(field)} |")
        lines.append("")
    assert not options, "every option has a heading"
    return "\n".join(lines)


def test_the_page_lists_every_option() -> None:
    assert PAGE.read_text(encoding="utf-8").endswith(f"\n\n{tables()}"), tables()
    assert "(default: 1GiB)" in tables()


def test_its_example_is_a_config_file(tmp_path: Path) -> None:
    example = PAGE.read_text(encoding="utf-8").split("```")[1]
    (tmp_path / "job.yaml").write_text(example)
    assert read_config_file(tmp_path / "job.yaml")["restarts"] == 3
