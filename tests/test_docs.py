"""The README and the pages of docs/ agree with the code: links, keys, commands, files, names and
examples."""

import importlib.util
import re
import shlex

import pytest
import torch

from configs.command_line.command import SETTINGS, parse, presets
from data.masking.strategies import STRATEGIES
from runs.files import ROOT

PAGES = {
    path.relative_to(ROOT).as_posix(): path
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
}
TEXTS = {name: path.read_text(encoding="utf-8") for name, path in PAGES.items()}
FENCE = re.compile(r"^```\w*\n(.*?)^```", re.M | re.S)


def found(pattern):
    """The page and the first group of every match of `pattern`, each once."""
    return sorted(
        {
            (name, match[1])
            for name, text in TEXTS.items()
            for match in re.finditer(pattern, text, re.M)
        }
    )


def commands(program):
    """The arguments of every command in the pages that starts with `program`, without comments."""
    lines = [
        line
        for text in TEXTS.values()
        for block in FENCE.findall(text)
        for line in block.splitlines()
    ]
    spans = [
        span for text in TEXTS.values() for span in re.findall(r"`([^`]+)`", FENCE.sub("", text))
    ]
    spans = [" ".join(span.split()) for span in spans]
    named = (re.split(r"\s+#", line)[0].strip() for line in lines + spans)
    return sorted({line.partition(program)[2].strip() for line in named if program in line})


def headings(text):
    """The anchors that GitHub gives to a page's headings."""
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_link_leads_to_a_file_and_a_heading():
    broken = []
    for page, link in found(r"\]\((?!http)([^)]+)\)"):
        path, _, anchor = link.partition("#")
        target = (PAGES[page].parent / path) if path else PAGES[page]
        if not target.exists() or (
            anchor and anchor not in headings(target.read_text(encoding="utf-8"))
        ):
            broken.append((page, link))
    assert broken == []


GROUPS = "model|data|masking|training|objective|checkpoint|sample"
FOLDERS = "benchmarks|board|configs|data|docs|model|notebooks|runs|tests|training"
MADE = ("data/cache", "benchmarks/results/")  # when something is compiled, downloaded or measured
TARGETS = " ".join(
    re.findall(r"^([a-z -]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
).split()
NAMED = {
    # model.d_model=256 and `data.corpus`, but not configs/model.py, masking.md or data.masking
    "keys": (
        rf"(?<![\w/.])((?:{GROUPS})\.(?!md\b|safetensors\b)[a-z_]+)\b(?!\.\w|/)",
        lambda key: key in SETTINGS or key in ("data.masking", "data.batch"),
    ),
    "make targets": (r"make ([a-z][a-z-]+)", lambda target: target in TARGETS),
    "modules that are run": (r"python -m ((?:benchmarks|data)[\w.]*\w)", importlib.util.find_spec),
    "files": (
        rf"(?<![\w/.])((?:{FOLDERS})/[\w./-]*[\w/])",
        lambda path: path.startswith(MADE) or (ROOT / path).exists(),
    ),
}


@pytest.mark.parametrize(("pattern", "exists"), NAMED.values(), ids=NAMED)
def test_everything_that_is_named_exists(pattern, exists):
    assert [(page, name) for page, name in found(pattern) if not exists(name)] == []


def test_every_strategy_and_preset_is_described():
    names = [*STRATEGIES, "mixture", "labml_nn"]
    assert [name for name in names if f"`{name}`" not in TEXTS["docs/masking.md"]] == []
    assert [name for name in presets() if f"`{name}`" not in TEXTS["README.md"]] == []


@pytest.mark.parametrize("arguments", commands("python experiment.py"))
def test_every_training_command_is_valid(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.py").touch()
    words = shlex.split(arguments.replace("=N", "=0"))
    for option in ("--resume", "--config", "--init-from"):  # these take a run
        if option in words:
            del words[words.index(option) : words.index(option) + 2]
    if words == ["--help"]:
        with pytest.raises(SystemExit, match="0"):
            parse(words)
    else:
        parse(words)


def test_arguments_passed_through_make_are_valid():
    for arguments in commands("make train ARGS="):
        parse(shlex.split(*shlex.split(arguments.replace("N", "0"))))


@pytest.mark.parametrize(
    "program", sorted({program for _, program in found(r"python (\w+\.py|-m data\.[\w.]*\w)\b")})
)
def test_every_option_exists(program):
    path = (
        program
        if program.endswith(".py")
        else program.removeprefix("-m ").replace(".", "/") + ".py"
    )
    sources = ["configs/command_line/command.py"] if program == "experiment.py" else [path]
    known = "--help" + "".join((ROOT / path).read_text(encoding="utf-8") for path in sources)
    options = re.findall(r"--[a-z-]+", " ".join(commands(f"python {program}")))
    assert [option for option in options if option not in known] == []


def test_runs_describes_every_field_and_every_file_of_a_run(train):
    trained = train(training__max_steps=4)
    page = TEXTS["docs/runs.md"]
    assert [name for name in trained.callbacks.rows[0] if f"`{name}`" not in page] == []
    assert [path.name for path in trained.run.path.iterdir() if f"`{path.name}" not in page] == []


def example(page, part):
    """The one Python block of a page that contains `part`."""
    (block,) = [
        block
        for block in re.findall(r"^```python\n(.*?)^```", TEXTS[page], re.M | re.S)
        if part in block
    ]
    return block


def test_the_mlm_example_masks_a_tensor():
    names = {}
    exec(example("docs/masking.md", "mlm = MLM("), names)
    assert names["inputs"].shape == names["labels"].shape == (8, 32)
    assert 0.05 < names["selected"].float().mean() < 0.25
    assert torch.equal(names["labels"][names["selected"]], names["x"][names["selected"]])


def core_path():
    """The files that docs/reading.md walks through, in order, each with its section."""
    parts = re.split(r"^#### `([\w/.]+\.py)`$", TEXTS["docs/reading.md"], flags=re.M)
    return {
        path: re.split(r"^#", body, flags=re.M)[0]
        for path, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def test_reading_names_only_what_is_in_each_file():
    missing = []
    for path, section in core_path().items():
        source = (ROOT / path).read_text(encoding="utf-8")
        names = [
            name for name in re.findall(r"`([\w.]*[A-Za-z_])`", section) if not name.endswith(".py")
        ]
        missing += [
            (path, name)
            for name in names
            if not re.search(rf"\b{name.rpartition('.')[2]}\b", source)
        ]
    assert missing == []
