"""`python generate.py`, in process except for its speed at the start."""

import re
import sys

import pytest
from PIL import Image

import writing.terminal
from data.vocabulary import MASK
from generate import SEPARATOR, main
from tests.conftest import made_once, train_in, written
from tests.writing.test_terminal import Emulator, terminal
from writing.prompts import reservation_about

ALL_RATES = {
    "masking__randomize_prob": 0.0,
    "masking__no_change_prob": 0.0,
    "training__stages": [
        {"until": 0.2, "seq_len": 32, "masking_prob": 0.9},
        {"until": 1.0, "seq_len": 64, "masking_prob": 0.2},
    ],
}


@pytest.fixture(scope="module")
def logs(tmp_path_factory, sentences):
    def train_all(folder):
        keys = {
            "data__corpus": written(folder / "text.txt", sentences),
            "training__max_steps": 20,
        }
        train_in(folder / "mlm" / "onerate", **keys)
        train_in(folder / "mlm" / "bytes", **keys, **ALL_RATES, data__tokens="bytes")
        train_in(folder / "mlm" / "bpe", **keys, **ALL_RATES, data__tokens="bpe:280")
        keys |= {"training__max_steps": 150, "model__ngrams": 4}
        train_in(folder / "mlm" / "writer", **keys, **ALL_RATES)
        (folder / "text.txt").unlink()  # writing needs no text

    return made_once(tmp_path_factory, "writers", train_all)


@pytest.fixture
def generated(logs, capsys):
    """Generate in this process; returns the output."""

    def generate(*words, run="writer"):
        assert main([str(logs / "mlm" / run), *words]) == 0

        output = capsys.readouterr()
        assert output.err == ""
        assert MASK not in output.out
        assert "[PAD]" not in output.out

        return output.out.removesuffix("\n")

    return generate


@pytest.mark.parametrize(
    ("words", "pattern"),
    [
        ([], r".{64}"),  # as long as the windows
        (["--prompt", "the cat"], r"the cat.{57}"),
        (["--prompt", "the c_t[MASK]sat"], r"the c.t.sat"),
        (["--prompt", "the c_t", "--length", "20"], r"the c.t.{13}"),
        (["--length", "1", "--steps", "5"], r"."),
        (["--length", "65", "--steps", "5"], r".{65}"),
        (["--length", "300", "--steps", "5"], r".{300}"),
    ],
)
def test_a_prompt_is_filled_and_continued(generated, words, pattern):
    assert re.fullmatch(pattern, generated(*words), re.DOTALL)


def test_the_same_seed_gives_the_same_texts(generated):
    three = generated("--n", "3", "--length", "20").split(f"\n{SEPARATOR}\n")

    assert len(set(three)) == 3
    assert [generated("--n", "2", "--length", "20").split(f"\n{SEPARATOR}\n")] == [
        three[:2]
    ]
    assert generated("--length", "20", "--seed", "0") == three[0]
    assert generated("--length", "20", "--seed", "1") not in three


def test_every_option_changes_the_text(generated):
    options = (
        "--temperature=0.1",
        "--order=left-to-right",
        "--remask=0.5",
        "--steps=1",
    )
    texts = {generated(option) for option in options}

    assert len(texts | {generated()}) == 5


def test_a_run_writes_what_it_has_learned(generated):
    prompt = "the cat sat on the mat.\nthe c_t sat on the m_t.\n"
    text = generated("--prompt", prompt, "--temperature", "0")
    assert text == "the cat sat on the mat.\n" * 2


@pytest.mark.parametrize("run", ["bytes", "bpe"])
def test_lengths_are_in_tokens(generated, run, logs):
    assert generated("--prompt", "the cat", "--length", "30", run=run).startswith(
        "the cat"
    )
    # a byte, or U+FFFD
    assert len(generated("--length", "1", run="bytes").encode(errors="replace")) <= 3


# options with a value that is wrong beside the others
WRONG = [
    ["--length", "0"],
    ["--length", "3", "--prompt", "the cat"],
    ["--prompt", "the cat", "--length", "7"],
    ["--prompt", "t" * 65],
    ["--blank", "", "--prompt", "ca_"],
    ["--steps", "0"],
    ["--temperature", "-1"],
    ["--temperature", "nan"],
    ["--remask", "1"],
    ["--n", "0"],
    ["--seed", "2147483648"],
    ["--order", "backwards"],
    ["--gif", "text.png"],
    ["--gif", "/proc/text.gif"],
    ["--gif", f"{'x' * 300}.gif"],
    ["--gif", "text.gif", "--length", "5000"],
]


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_wrong_input_is_one_line(logs, refusal, words):
    name = words[0].removeprefix("--")
    assert name in refusal(main, logs / "mlm" / "writer", *words, before="")


def test_a_gif_records_the_first_text_and_is_never_replaced(
    generated, logs, refusal, tmp_path
):
    words = ["--length", "20", "--n", "2"]
    path = tmp_path / "new" / "text.gif"

    assert generated(*words, "--gif", str(path)) == generated(*words)
    with Image.open(path) as image:
        assert 20 <= image.n_frames <= 22
    before = path.read_bytes()

    assert "exists already" in refusal(main, logs / "mlm" / "writer", "--gif", path)
    assert path.read_bytes() == before


def test_a_run_at_one_masking_rate_warns(logs, capsys):
    assert main([str(logs / "mlm" / "onerate"), "--length", "5"]) == 0

    output = capsys.readouterr()
    (line,) = output.err.splitlines()

    assert "at masking rates of 15% to 30% only" in line
    assert len(output.out) == 6


@pytest.mark.parametrize(
    ("stages", "masking_prob", "randomize_prob", "reason"),
    [
        ([{}], 0.15, 0.0, "15% only: it has never seen mostly masked text"),
        ([{"masking_prob": 0.3}, {}], 0.6, 0.0, "30% to 60% only"),
        (
            [{"masking_prob": 0.9}],
            0.15,
            0.0,
            "90% only: it has never seen text with few blanks",
        ),
        ([{"masking_prob": [0.1, 0.5, 0.9]}], 0.15, 0.1, "with random replacements"),
        ([{"masking_prob": [0.1, 0.5, 0.9]}], 0.15, 0.0, ""),
        ([{}, {"masking_prob": 1.0}], 0.15, 0.0, ""),
    ],
)
def test_reservations_follow_from_the_rates(
    stages, masking_prob, randomize_prob, reason
):
    keys = {
        "masking.masking_prob": masking_prob,
        "masking.randomize_prob": randomize_prob,
    }
    reservation = reservation_about({"training.stages": stages, **keys})

    assert reason in reservation
    assert bool(reason) == bool(reservation)


def test_a_terminal_shows_the_text_step_by_step(logs, monkeypatch):
    monkeypatch.setattr(writing.terminal, "SECONDS_PER_FRAME", 0.0)
    monkeypatch.setenv("TERM", "xterm")

    words = [str(logs / "mlm" / "writer"), "--length", "40", "--steps", "8", "--n", "2"]
    with terminal(30, 24) as (stream, output):
        monkeypatch.setattr(sys, "stdout", stream)
        assert main(words) == 0
        shown = output()

    assert shown.count("\x1b[J") == 2 * (1 + 8 + 1)
    assert f"\x1b[2m{'·' * 29}" in shown

    final = Emulator(30, 24).feed(shown)
    with open(logs / "piped.txt", "w+", encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdout", file)
        assert main(words) == 0
        file.seek(0)
        piped = Emulator(30, 24).feed(file.read().replace("\n", "\r\n"))

    assert final.rows == piped.rows
    assert any(final.rows)


def test_a_reader_that_leaves_is_no_error(logs, fork_server):
    """As `head` does: the first line is enough."""
    words = ["generate.py", f"{logs}/mlm/writer", "--length", "3", "--n", "300"]
    program = fork_server.start(words)

    assert program.stdout.readline()

    program.stdout.close()
    program.wait(120)

    assert program.stderr.read() == ""
