"""`python predict.py`, in process except where standard input or memory matters."""

import io
import json
import shutil
import sys

import pytest

from configs.keys import ConfigError
from predict import main
from runs.find import find_run
from runs.run_folder import RunFolder
from tests.conftest import written
from trained.piped import lines
from trained.printed import as_json


@pytest.fixture(scope="module")
def logs(tmp_path_factory, with_ngrams):
    """A copy of the run, whose text is not there: predictions need none."""
    folder = tmp_path_factory.mktemp("logs")
    run = RunFolder(shutil.copytree(with_ngrams.run.path, folder / "mlm" / "run"))
    run.save_config(run.config() | {"data.corpus": str(folder / "nowhere.txt")})
    return folder


@pytest.fixture
def predicted(logs, printed):
    """Predict in this process; returns the output."""
    return lambda *words: printed(main, "last", *words, "--logs", logs)


def test_blanks_are_filled(predicted):
    assert predicted("the c_t sat on the m[MASK]t.") == "the cat sat on the mat.\n"
    assert predicted("the c_t", "a d_g") == "the cat\na dog\n"

    first, second = predicted("the c_t sat", "--top", "3").splitlines()
    offset, *candidates = second.strip().split("  ")

    assert (first, offset, len(candidates)) == ("the cat sat", "5", 3)
    assert candidates[0].startswith("'a' ")


def test_texts_without_blanks_are_counted_on_standard_error(logs, capsys):
    assert main(["last", "a dog", "the c_t", "--logs", str(logs)]) == 0

    output, error = capsys.readouterr()
    assert output == "a dog\nthe cat\n"
    assert error.startswith("1 text(s) without a blank")


def test_json_is_for_programs(predicted):
    result = json.loads(predicted("the c_t sat", "--json", "--top", "2"))

    assert result["text"] == "the cat sat"

    (blank,) = result["blanks"]
    assert blank["offset"] == 5

    candidates = blank["candidates"]
    assert [list(each) for each in candidates] == [["character", "probability"]] * 2


@pytest.mark.parametrize(
    ("encoding", "text"), [("UTF-8", '"é中"'), ("latin-1", '"\\u00e9\\u4e2d"')]
)
def test_json_is_valid_in_every_encoding_of_the_output(monkeypatch, encoding, text):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding))
    assert as_json({"text": "é中"}) == f'{{"text": {text}}}'


def test_a_run_that_could_not_be_trained_here_predicts(logs, predicted):
    run = find_run("last", logs)
    before = run.config()
    run.save_config(before | {"training.chars_per_step": 2**30})

    assert predicted("the c_t") == "the cat\n"

    run.save_config(before)


def test_a_missing_run_is_named_alone(refusal):
    assert refusal(main).endswith("required: RUN\n")


@pytest.mark.parametrize(
    ("words", "answered", "message"),
    [
        (["the c_t", "_" * 10_001, "a d_g"], "the cat\n", "text 2: the text has"),
        (["_", "--top", "0"], "", "--top"),
        (["_", "--unkown"], "", "did you mean --unknown?"),
        (["the c_t", "\udcff"], "the cat\n", "text 2"),
        (["--serve", "--json"], "", "--serve"),
        (["_", "--serve"], "", "--serve"),
        (["_", "--blank", ""], "", "--blank"),
        (["_", "--score", "--blank", "?"], "", "--blank"),
        (["no.csv", "--column", "text"], "", "cannot read no.csv"),
        (["a.csv", "b.csv", "--column", "text"], "", "one FILE"),
    ],
)
def test_wrong_input_is_one_line_after_the_texts_before_it(
    logs, refusal, words, answered, message
):
    assert message in refusal(main, "last", *words, "--logs", logs, before=answered)


def test_unknown_characters_are_blanks_if_asked(predicted):
    assert len(predicted("the cét", "--unknown")) == len("the cat\n")
    assert "é" not in predicted("the cét", "--unknown")


def test_lines_of_json_are_answered_in_order(predicted, piped):
    requests = [
        {"text": "the c_t", "top": 2, "attention": 4, "more": 1},
        {"text": "a c_t", "exact": True},
        {"text": 3},
    ]
    piped("\n".join([*map(json.dumps, requests), "7", "the c_t"]).encode())

    first, *wrong = map(json.loads, predicted("--serve").splitlines())

    assert first["offsets"] == [5]

    ((best, _),) = first["candidates"]
    assert best[0] == "a"
    assert len(first["attention"]) == 7
    assert sum(first["attention"]) == pytest.approx(1, abs=0.01)
    assert len(wrong) == 4
    assert all("error" in reply for reply in wrong)
    assert "not JSON" in wrong[-1]["error"]


def test_lines_come_as_they_arrive():
    class Pipe(io.BytesIO):
        chunks = iter([b"one\ntw", b"o\n\n", b"thr", b"ee", b""])

        def read1(self, size=-1):
            return next(self.chunks)

    first, second, *none, last = lines(Pipe())

    assert first == [("line 1", b"one", "\n")]
    assert second == [("line 2", b"two", "\n"), ("line 3", b"", "\n")]
    assert none == [[], []]
    assert last == [("line 4", b"three", "")]


def test_a_line_without_end_is_refused(monkeypatch):
    monkeypatch.setattr("trained.piped.LONGEST_LINE", 200_000)
    with (
        open("/dev/zero", "rb") as zeros,
        pytest.raises(ConfigError, match="line 1 is longer"),
    ):
        list(lines(zeros))


MEASURED = """
import resource
import sys

from predict import main

code = main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture
def filtered(logs, tmp_path, fork_server):
    """Pipes lines through predict.py; returns its output and its peak memory in KiB."""
    script = written(tmp_path / "predict.py", MEASURED)

    def filtered(content):
        lines = written(tmp_path / "input", content)
        words = [str(script), "last", "--logs", str(logs)]
        program = fork_server.start(words, standard_input=str(lines))
        output = program.stdout.read()
        error = program.stderr.read()

        assert program.wait(60) == 0

        return output, int(error.split()[-1])

    return filtered


def test_ten_thousand_piped_lines_need_no_more_memory_than_a_hundred(filtered):
    _, memory_of_few = filtered("the c_t sat\n\n_\n" * 33)
    output, memory_of_many = filtered("the c_t sat\n\n_\n" * 3_333)

    assert output.startswith("the cat sat\n\n")
    assert output.count("\n") == 3 * 3_333
    assert memory_of_many < memory_of_few + 100_000


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"\xff", "line 3 is not UTF-8 text"),
        (b"_" * 10_001, "line 3: the text has"),
    ],
)
def test_the_lines_before_a_bad_one_are_answered(logs, refusal, piped, bad, message):
    piped(b"the c_t\r\na d_g\n" + bad + b"\nthe c_t\n")
    assert message in refusal(main, "last", "--logs", logs, before="the cat\r\na dog\n")


def test_a_closed_standard_input_is_one_line(logs, refusal, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)  # as Python does for `predict.py RUN <&-`

    assert "standard input is closed" in refusal(main, "last", "--logs", logs)
    assert main(["last", "the c_t", "--logs", str(logs)]) == 0
