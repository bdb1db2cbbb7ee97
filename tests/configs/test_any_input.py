"""For any command line and any config file, a run can be built, or one line says what is wrong."""

import contextlib
import io
import os
import resource
import signal

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from configs.command_line.command import (
    LARGEST_CONFIG,
    SETTINGS,
    parse,
    read_config,
    resolve,
)
from configs.command_line.program import fail
from configs.keys import ConfigError
from data.corpus import CorpusError, load_corpus
from experiment import main
from runs.run_folder import RunFolderError
from tests.conftest import addresses, limited, written

BOMB = "&a [x, x, x, x, x, x, x, x, x]"
for level in "bcdefghij":
    BOMB = f"&{level} [{BOMB}{f', *{chr(ord(level) - 1)}' * 9}]"  # 9**10 values
HUGE = "0x" + "f" * 5_000
ODD_PATHS = [
    "/dev/zero",
    "/dev/null",
    "~",
    "~nosuchuser/x",
    "a" * 5_000,
    "a/" * 3_000,
    "$x_{",
    "é",
    "{odd}/loop",
    "{odd}/loop/x",
    "{odd}/fifo",
    "{odd}/folder",
    "{odd}/dangling",
    "\0",
    "a\0b",
    "\ud800",
    "\udcff.txt",
    "\x1b[2J",
    "a\nb",
]
# surrogates and control characters included
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
LIKELY = [
    "random",
    "span",
    "quick",
    "cpu",
    "cuda:9",
    "1e3",
    "none",
    "[",
    "{until:1.0}",
    "mixture",
    "last",
    "-x",
    "=",
    "a=b=c",
    "--",
    "--preset",
    "--config",
    "--resume",
    "--seeds",
    "--seeds=2",
]
TEXTS = ANY_TEXT | st.sampled_from(LIKELY + ODD_PATHS)
ROW_KEYS = st.sampled_from(["until", "seq_len", "masking_prob", "random", "x"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(ROW_KEYS, inner, max_size=3)
    ),
)
KEYS = st.sampled_from(sorted(SETTINGS))
WORDS = TEXTS | st.builds("{}={}".format, KEYS, VALUES)
# Values as YAML spells them, valid or not: anchors, aliases, tags, numbers that take minutes or
# gigabytes.
SPELLINGS = [
    BOMB,
    HUGE,
    "9" * 5_000,
    "1:" * 2_000 + "0",
    "1" * 500 + ".5",
    "&a 1",
    "&a [*a]",
    "0x_",
    "._",
    ".inf",
    "1e999",
    "2024-02-30",
    "*a",
    "<<",
    "=",
    "~",
    "|",
    "%x",
    "@",
    "'",
    '"',
    '"\\0"',
    '"\\ud800"',
    '"\\x1b"',
    "? x",
    "- x",
    "\t",
    "x" * 9_999,
    "!!int ''",
    "!!bool x",
    "!!timestamp x",
    "! x",
    "!!set {a}",
    "!!binary x",
    "!!python/name:os.system",
]
YAML = st.recursive(
    st.sampled_from(SPELLINGS) | ANY_TEXT,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda parts: f"[{', '.join(parts)}]"),
        st.builds("{{{0}: {1}, <<: {1}}}".format, ROW_KEYS | inner, inner),
    ),
)
SPELLED = st.lists(st.builds("{}: {}\n".format, KEYS | ANY_TEXT, YAML), max_size=3).map(
    "".join
)
DUMPED = (st.dictionaries(KEYS | ANY_TEXT, VALUES, max_size=5) | VALUES).map(
    yaml.safe_dump
)
ENCODINGS = st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32", "latin-1"])
ANY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def bounds():
    """A reader that never ends, or that takes all memory, fails instead."""

    def stop(*_):
        # TimeoutError would be an OSError, which readers catch
        pytest.fail("took more than 100 s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(100)
    with limited(resource.RLIMIT_AS, addresses() + 2**31):
        yield

    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A folder of paths that are no regular files."""
    folder = tmp_path_factory.mktemp("odd")
    os.mkfifo(folder / "fifo")
    (folder / "folder").mkdir()
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("nowhere")
    return str(folder)


def one_line_at_most(arguments):
    """Parse a command line, load its corpus if it names one, and return the error's line; empty if
    all is well."""
    errors = io.StringIO()
    try:
        command = parse(arguments)
        assert set(command.values) == set(SETTINGS)
        if "data.corpus" in command.overridden:
            load_corpus(command.values["data.corpus"])
    except (ConfigError, CorpusError, RunFolderError) as error:
        with contextlib.redirect_stderr(errors):
            fail(error)

    line = errors.getvalue().removesuffix("\n")

    assert line.isprintable()
    assert len(line) < 1_100

    return line


@settings(ANY, max_examples=60)
@given(
    words=st.lists(WORDS.filter(lambda word: word not in ("-h", "--help")), max_size=5)
)
def test_any_command_line_is_understood_or_refused_in_one_line(words, odd):
    one_line_at_most([word.replace("{odd}", odd) for word in words])


@pytest.mark.parametrize("path", ODD_PATHS)
@pytest.mark.parametrize(
    "use", ["logs=", "data.corpus=", "name=", "--config=", "--resume="]
)
def test_an_odd_path_is_understood_or_refused_in_one_line(use, path, odd):
    line = one_line_at_most([use + path.replace("{odd}", odd)])
    assert line or use == "logs="


@settings(ANY, max_examples=120)
@given(
    text=DUMPED | SPELLED,
    encoding=ENCODINGS,
    junk=st.just(b"") | st.binary(max_size=200),
)
@example(text='logs: "\\ud800"\n', encoding="utf-8", junk=b"")
@example(text='data.corpus: "\\0"\n', encoding="utf-8", junk=b"")
def test_any_content_of_a_config_file_is_understood_or_refused_in_one_line(
    text, encoding, junk, tmp_path
):
    errors = "surrogatepass" if encoding.startswith("utf") else "replace"
    path = tmp_path / "any.yaml"
    path.write_bytes(text.encode(encoding, errors) + junk)
    one_line_at_most(["--config", str(path)])


@settings(ANY, max_examples=40)
@given(values=st.dictionaries(KEYS, VALUES, max_size=4))
def test_values_that_are_accepted_are_accepted_again_from_the_file_they_are_saved_to(
    values, tmp_path
):
    try:
        resolved = resolve(
            {key: SETTINGS[key].parse(value) for key, value in values.items()}, {}
        )
    except ConfigError:
        return

    path = written(
        tmp_path / "config.yaml", yaml.safe_dump(resolved, allow_unicode=True)
    )

    assert resolve(read_config(path), {}) == resolved


@pytest.mark.parametrize(
    "content",
    [
        "!!python/object/apply:os.system ['touch {marker}']",
        "seed: !!python/object/apply:os.system ['touch {marker}']",
        "a: &a [*a]",
        "&a [*a, *a]",
        f"seed: {BOMB}",
        "training.stages: &s [{until: 1.0, seq_len: 8, x: *s}]",
        f"training.stages: [{{until: 1.0, seq_len: {HUGE}}}]",
        f"seed: {HUGE}",
        'data.corpus: "\\ud800"',
        "[1, 2]",
        "1: 2",
        "seed: 2024-13-45",
        "\x00",
        "[" * 10_000,
        "{{{{",
        "#" * (LARGEST_CONFIG + 1),
    ],
)
def test_a_malicious_config_is_refused_in_one_line_and_runs_nothing(
    content, tmp_path, refusal
):
    marker = tmp_path / "executed"
    path = written(tmp_path / "stranger.yaml", content.replace("{marker}", str(marker)))
    refusal(main, "--config", path)

    assert not marker.exists()
