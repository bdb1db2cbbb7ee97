import json
import re
import subprocess

from benchmarks.command import RESULTS
from benchmarks.page import PAGES, filled
from runs.files import ROOT


def text_of_pages():
    return "".join(page.read_text(encoding="utf-8") for page in PAGES)


def test_the_pages_have_the_tables_of_the_results():
    """If this fails: python -m benchmarks.page"""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert filled(text) == text, page.name


def test_every_tracked_result_is_on_a_page():
    text = text_of_pages()
    # nothing outside of git
    listed = subprocess.run(
        ["git", "ls-files"], cwd=RESULTS, capture_output=True, text=True
    )

    assert [path for path in listed.stdout.split() if path not in text] == []


def test_the_readme_quotes_figures_of_the_pages():
    figures = re.findall(
        r"\b\d+\.\d{3}\b", (ROOT / "README.md").read_text(encoding="utf-8")
    )
    text = text_of_pages()

    assert len(figures) > 3
    assert [figure for figure in figures if figure not in text] == []


def test_uncommitted_code_is_named(tmp_path, monkeypatch):
    machine = {
        "machine": "M, 1 core",
        "threads": "1",
        "torch": "2.0",
        "commit": "1234567+",
        "date": "2026-01-01",
    }
    (tmp_path / "x.json").write_text(
        json.dumps({"machine": machine, "table": [{"a": "1"}]})
    )
    monkeypatch.setattr("benchmarks.page.RESULTS", tmp_path)
    text = filled("before\n<!-- from x.json -->\nold\n<!-- end -->\nafter")

    table = "| a |\n| --- |\n| 1 |\n\nM, 1 core, 1 thread, PyTorch 2.0, commit 1234567"

    assert f"{table} with uncommitted changes" in text
    assert text.startswith("before\n")
    assert text.endswith("\nafter")
    assert filled(text) == text
