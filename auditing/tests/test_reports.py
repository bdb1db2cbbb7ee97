"""The command `folio-audit masks`: exit codes, one line for invalid input, and the three reports."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from auditing.__main__ import main
from auditing.findings import Finding, Verdict
from auditing.report import Report, as_json, page, terminal

ROOT = Path(__file__).parents[2]
TARGETS = """
import contextlib, os, torch
def mask(x):
    if x.shape[1] == 64: print("printed by the target")
    selected = (torch.rand(x.shape) < 0.15) & (x < 65)
    return torch.where(selected, 66, x), torch.where(selected, x, -100)
def garbage(x):
    for descriptor in range(3, 41):
        with contextlib.suppress(OSError):
            os.write(descriptor, b"garbage" * 100)
    return mask(x)
def everything(x):
    return torch.where(torch.rand(x.shape) < 0.15, 66, x), x.clone()
def hangs(x):
    print("hanging", flush=True)
    import time; time.sleep(1000)
for function in (mask, garbage, everything, hangs):
    function.n_tokens, function.mask_token, function.padding_token = 67, 66, 65
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data.py").write_text(TARGETS)  # Folio has a `data` too
    return tmp_path


@pytest.mark.usefixtures("few_windows")
def test_a_correct_masker_from_another_folder(folder, monkeypatch, capfd):
    monkeypatch.chdir(folder)
    assert (
        main(["masks", "data:mask", "--json", "report.json", "--html", "report.html"])
        == 0
    )
    output, error = capfd.readouterr()
    assert "printed by the target" in error
    assert "printed by the target" not in output
    assert max(map(len, output.splitlines())) <= 100
    assert "Nearest recipe: [MASK] only" in output
    report = json.loads((folder / "report.json").read_text())
    assert report["verdict"] == "ok"
    assert {finding["verdict"] for finding in report["findings"]} == {"ok"}
    html = (folder / "report.html").read_text()
    assert "<svg" not in html  # pictures are of what is wrong
    # nothing is loaded from elsewhere
    assert not re.search(r"(src|href)=\"(?!data:)", html)
    assert sorted(path.name for path in folder.iterdir() if path.is_file()) == [
        "data.py",
        "report.html",
        "report.json",
    ]


@pytest.mark.usefixtures("few_windows")
def test_something_broken_is_exit_code_3_and_json_is_printed(
    folder, monkeypatch, capsys
):
    monkeypatch.chdir(folder)
    assert main(["masks", "data.py:everything", "--json", "--workers", "0"]) == 3
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] == "broken"
    assert report["findings"][0]["bug"] == "labels-everywhere"


@pytest.mark.usefixtures("few_windows")
def test_a_target_that_writes_into_all_descriptors_is_audited(
    folder, monkeypatch, capfd
):
    monkeypatch.chdir(folder)
    assert main(["masks", "data.py:garbage", "--seconds-per-call", "20"]) == 0
    assert "Nearest recipe: [MASK] only" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("masks data:mask --recipe T5", "T5 is denoising"),
        ("masks data:mask --recipe ELECTRA", "audit its generator"),
        (
            "masks data:mask --recipe BERTA",
            "unknown recipe 'BERTA': choose one of BERT",
        ),
        ("masks data:mask --rate 15", "state a share between 0 and 1"),
        ("masks data:mask --workers 1", "at least 2 workers"),
        ("masks data:mask --n-tokens 1", "state the number with special tokens"),
        ("masks data:mask --n-tokens 70 --special 0,70", "not all below n_tokens = 70"),
        (
            "masks data:mask --html nowhere/report.html",
            "cannot write nowhere/report.html",
        ),
        ("masks data:mask --seconds-per-call 0", "--seconds-per-call 0 is not above 0"),
        (
            "masks data:mask --seconds-per-call inf",
            "--seconds-per-call inf is not above 0 and below 1e6",
        ),
        (
            "masks data:mask --special 1,x",
            "'1,x' is not a list of ids separated by commas",
        ),
        ("masks data:mask --seed -1", "the seed is -1"),
        ("masks", "TARGET"),
        ("mask data:mask", "invalid choice"),
        (
            "pipeline json",
            "no function make_model: it needs make_model, make_batches, loss_and_logits",
        ),
        ("pipeline json --html missing/a.html", "cannot write missing/a.html"),
    ],
)
def test_invalid_input_is_one_line_and_exit_code_2(
    folder, monkeypatch, capsys, arguments, line
):
    monkeypatch.chdir(folder)
    assert main(arguments.split()) == 2
    (own,) = capsys.readouterr().err.splitlines()
    assert own.startswith("folio-audit: ")
    assert line in own


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_a_signal_ends_the_audit_and_its_target(folder, number, code):
    command = [sys.executable, "-m", "auditing", "masks", f"{folder / 'data.py'}:hangs"]
    audit = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert audit.stderr is not None
    while (
        "hanging" not in audit.stderr.readline()
    ):  # the target's process has begun a call
        assert audit.poll() is None
    audit.send_signal(number)
    # ends when every process that could write has ended
    assert audit.stderr.read() == ""
    assert audit.wait(60) == code
    assert not [
        path
        for path in Path("/proc").glob("[0-9]*")
        if str(folder) in arguments_of(path)
    ]


def arguments_of(process: Path) -> str:
    """The command line of a process."""
    try:
        return (process / "cmdline").read_text()
    except OSError:
        return ""


def report() -> Report:
    right = Finding("selected share", "15.0%", "15%", "z = +0.1")
    wrong = Finding(
        "labels <where> selected", "wrong " * 20, "original ids", "5 of 9", Verdict.BROKEN, "labels-shifted",
        "Labels were shifted. " * 9, ("nothing",), chart=(0.1, 0.2, 0.3),
    )  # fmt: skip
    return Report("Masks of a target", [right, wrong], "Nearest recipe: BERT.")


def test_the_terminal_report_fits_100_columns_and_json_and_html_hold_every_finding():
    text = terminal(report(), colors=False)
    assert max(map(len, text.splitlines())) <= 100
    assert "[labels-shifted] Labels were shifted." in text
    assert "\x1b" not in text
    assert "\x1b[1;31mbroken\x1b[0m" in terminal(report(), colors=True)
    assert [
        finding["bug"] for finding in json.loads(as_json(report()))["findings"]
    ] == [
        None,
        "labels-shifted",
    ]
    html = page(report())
    assert "labels &lt;where&gt; selected" in html
    # what is broken comes first
    assert html.index("labels-shifted") < html.index("selected share")
    assert html.count("<rect") == 3
    assert 'content="width=device-width' in html
    assert "prefers-color-scheme: dark" in html
