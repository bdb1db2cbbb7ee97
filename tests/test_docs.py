"""The README and the pages of docs/ agree with the code: links, keys, commands, files, names and
examples."""

import contextlib
import importlib.util
import re
import shlex

import pytest
import torch

from configs.command_line.command import SETTINGS, parse, presets
from data.masking.strategies import STRATEGIES
from runs.files import ROOT


def read(path):
    return path.read_text(encoding="utf-8")


PATHS = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
PAGES = {path.relative_to(ROOT).as_posix(): path for path in PATHS}
TEXTS = {name: read(path) for name, path in PAGES.items()}
FENCE = re.compile(r"^```\w*\n(.*?)^```", re.M | re.S)


def matches(pattern):
    """The page and the first group of every match of `pattern`, each once."""
    unique = set()
    for name, text in TEXTS.items():
        unique |= {(name, match[1]) for match in re.finditer(pattern, text, re.M)}
    return sorted(unique)


def commands(program):
    """The arguments of every command in the pages that starts with `program`, without comments."""
    lines = []
    for text in TEXTS.values():
        for block in FENCE.findall(text):
            lines += block.splitlines()
        lines += [
            " ".join(span.split())
            for span in re.findall(r"`([^`]+)`", FENCE.sub("", text))
        ]
    named = (re.split(r"\s+#", line)[0].partition(program) for line in lines)
    return sorted({arguments.strip() for _, program, arguments in named if program})


def headings(text):
    """The anchors that GitHub gives to a page's headings."""
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.M)
    return {
        re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles
    }


def test_every_link_leads_to_a_file_and_a_heading():
    for page, link in matches(r"\]\((?!http)([^)]+)\)"):
        path, _, anchor = link.partition("#")
        target = PAGES[page].parent / path if path else PAGES[page]
        assert target.exists(), (page, link)
        assert not anchor or anchor in headings(read(target)), (page, link)


GROUPS = "model|data|masking|training|objective|checkpoint|sample"
FOLDERS = "benchmarks|board|configs|data|docs|model|notebooks|runs|tests|training"
# when something is compiled, downloaded or measured
MADE = ("data/cache", "benchmarks/results/")
TARGETS = re.findall(r"^([a-z -]+):", read(ROOT / "Makefile"), re.M)
NAMED = {
    # model.d_model=256 and `data.corpus`, but not configs/model.py, masking.md or data.masking
    "keys": (
        rf"(?<![\w/.])((?:{GROUPS})\.(?!md\b|safetensors\b)[a-z_]+)\b(?!\.\w|/)",
        lambda key: key in SETTINGS or key in ("data.masking", "data.batch"),
    ),
    "make targets": (
        r"make ([a-z][a-z-]+)",
        lambda target: target in " ".join(TARGETS).split(),
    ),
    "modules that are run": (
        r"python -m ((?:benchmarks|data)[\w.]*\w)",
        importlib.util.find_spec,
    ),
    "files": (
        rf"(?<![\w/.])((?:{FOLDERS})/[\w./-]*[\w/])",
        lambda path: path.startswith(MADE) or (ROOT / path).exists(),
    ),
}


@pytest.mark.parametrize(("pattern", "exists"), NAMED.values(), ids=NAMED)
def test_everything_that_is_named_exists(pattern, exists):
    assert [(page, name) for page, name in matches(pattern) if not exists(name)] == []


def test_every_strategy_and_preset_is_described():
    for name in [*STRATEGIES, "mixture", "labml_nn"]:
        assert f"`{name}`" in TEXTS["docs/masking.md"]
    for name in presets():
        assert f"`{name}`" in TEXTS["README.md"]


@pytest.mark.parametrize("arguments", commands("python experiment.py"))
def test_every_training_command_is_valid(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.py").touch()
    with_run = r"--(resume|config|init-from) \S+"
    words = shlex.split(re.sub(with_run, "", arguments.replace("=N", "=0")))
    with contextlib.suppress(SystemExit):  # --help
        parse(words)


def test_arguments_passed_through_make_are_valid():
    for arguments in commands("make train ARGS="):
        parse(shlex.split(*shlex.split(arguments.replace("N", "0"))))


PROGRAMS = {program for _, program in matches(r"python (\w+\.py|-m data\.[\w.]*\w)\b")}


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_every_option_exists(program):
    path = program
    if program.startswith("-m "):
        path = program[3:].replace(".", "/") + ".py"
    if program == "experiment.py":
        path = "configs/command_line/command.py"
    known = "--help" + read(ROOT / path)
    options = re.findall(r"--[a-z-]+", " ".join(commands(f"python {program}")))
    assert [option for option in options if option not in known] == []


def test_runs_describes_every_field_and_every_file_of_a_run(train):
    trained = train(training__max_steps=4)
    page = TEXTS["docs/runs.md"]
    for name in trained.callbacks.rows[0]:
        assert f"`{name}`" in page
    for path in trained.run.path.iterdir():
        assert f"`{path.name}" in page


def test_the_mlm_example_masks_a_tensor():
    blocks = re.findall(r"^```python\n(.*?)^```", TEXTS["docs/masking.md"], re.M | re.S)
    (example,) = [block for block in blocks if "mlm = MLM(" in block]
    names = {}
    exec(example, names)
    assert names["inputs"].shape == names["labels"].shape == (8, 32)
    assert 0.05 < names["selected"].float().mean() < 0.25
    assert torch.equal(
        names["labels"][names["selected"]], names["x"][names["selected"]]
    )


def test_reading_names_only_what_is_in_each_file():
    parts = re.split(r"^#### `([\w/.]+\.py)`$", TEXTS["docs/reading.md"], flags=re.M)
    for path, body in zip(parts[1::2], parts[2::2], strict=True):
        source = read(ROOT / path)
        section = re.split(r"^#", body, flags=re.M)[0]
        for name in re.findall(r"`([\w.]*[A-Za-z_])`", section):
            is_file = name.endswith(".py")
            assert is_file or re.search(rf"\b{name.rpartition('.')[2]}\b", source), (
                path,
                name,
            )
