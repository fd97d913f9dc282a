"""The site of the documentation: it builds, by mkdocs's strict rules, and asks for nothing elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# What a page loads by itself, in contrast to links that a reader follows.
LOADED = re.compile(
    r"""<(?:script|img|iframe)\b[^>]*\bsrc=["']?(\w+:|//)|<link\b[^>]*stylesheet[^>]*href=["']?(\w+:|//)"""
)


@pytest.fixture(scope="module")
def site() -> Path:
    pytest.importorskip("torch")  # the reference of Python has names that need it
    done = subprocess.run(
        [sys.executable, "scripts/site/build.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Path(done.stdout.split("docs: ")[1].strip()).parent


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 30
    assert not {page.name: found[0] for page in pages if (found := LOADED.search(page.read_text()))}


def test_the_reference_is_made_of_what_is_there(site: Path) -> None:
    import freshet

    text = {name: (site / f"reference/{name}.html").read_text() for name in ("commands", "python")}
    assert "--partitioner" in text["commands"]
    assert "freshet layer check" in text["commands"]
    headings = re.findall(r"<h2 [^>]*>(.*?)</h2>", text["python"], flags=re.DOTALL)
    said = {re.sub(r"<[^>]*>|&para;", "", one).strip() for one in headings}
    assert {name for name in freshet.__all__ if not name.startswith("_")} <= {one.split("(")[0].strip() for one in said}


def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT))
    from scripts.site.build import LINK, moved

    page = ROOT / "docs" / "guide" / "check.md"
    good = LINK.search("[a](../../SECURITY.md#x)")
    bad = LINK.search("[a](no_such.md)")
    assert good is not None
    assert bad is not None
    assert moved(good, page, "guide/check.md") == "[a](../security.md#x)"
    with pytest.raises(SystemExit, match=r"no_such\.md leads nowhere"):
        moved(bad, page, "guide/check.md")
