import json
import math
import os
import re
import shlex
import time
from itertools import product
from unittest.mock import Mock

import pytest
import yaml

from runs import files, run_folder
from runs.reading import read_bytes
from runs.run_folder import RunFolder, RunFolderError
from runs.schema import EVENT, MISSING, STATUS, checked, matches
from tests.conftest import one_line
from tests.runs.conftest import metrics_row

READERS = {
    "about.json": RunFolder.about,
    "status.json": RunFolder.status,
    "corpus.json": RunFolder.corpus,
    "reference_lines.json": RunFolder.reference_lines,
    "config.yaml": RunFolder.about,
    "metrics.jsonl": RunFolder.metrics,
    "events.jsonl": RunFolder.events,
}


def row_with(**values):
    """A line of metrics.jsonl in which some values are wrong."""
    return json.dumps(metrics_row(1) | values).encode() + b"\n"


def steps(rows):
    return [row["step"] for row in rows]


def contents(run):
    return {path: path.read_bytes() for path in run.path.iterdir()}


def test_a_run_reads_back_what_it_wrote_and_its_command_quotes_a_path_with_spaces(run):
    about = run.about()
    assert about["name"] == "mlm, play"
    assert about["comment"] == "preset quick"
    assert about["explicit"] == ["seed"]
    assert run.status()["status"] == "in progress"
    assert run.corpus() == {"name": "play", "sha256": "0" * 64, "contents": ""}
    assert run.reference_lines() == {"uniform": 4.0, "unigram": 3.3}
    assert steps(run.metrics()) == [1, 2, 3]
    assert steps(run.events()) == [1, 2, 3]

    run.save_status("crashed", "the loss is nan")
    run.append_event(
        {"event": "changed by hand", "step": 5, "after": {"masking_prob": 0.3}}
    )
    about = run.about()

    assert (
        about["comment"] == "failed: the loss is nan | preset quick (changed by hand)"
    )
    assert about["configs"]["changed_by_hand"] == (
        "from step 5: learning_rate_factor 1, masking_prob 0.3"
    )

    run.save_about("mlm", "config my runs/config.yaml seed=1", ["seed"])

    assert run.command() == "python experiment.py --config 'my runs/config.yaml' seed=1"


def test_lists_and_all_characters_are_read_back_from_the_config_and_from_the_command(
    run,
):
    prompts = ['It\'s "x"', "a\nb", "before\x85after", "true", "Zürich 中文"]
    run.save_config(run.config() | {"sample.prompts": prompts})
    run.save_about("mlm", "preset quick", ["sample.prompts"])

    assert run.config()["sample.prompts"] == prompts
    assert "\n" not in run.command()

    *_, word = shlex.split(run.command())

    assert yaml.safe_load(word.removeprefix("sample.prompts=")) == prompts


def test_a_number_that_is_not_finite_is_null(run):
    run.append_metrics(
        metrics_row(4) | {"loss.valid_stderr": math.nan, "loss.train": math.inf}
    )
    run.append_event(
        {"event": "resumed", "step": 3, "changed": {"x": [1.0, -math.inf]}}
    )
    run.save_reference_lines({"unigram": 3.3, "counting": math.nan})

    for path in (run.metrics_path, run.events_path, run.reference_lines_path):
        text = path.read_text()
        assert "null" in text
        assert not re.search("NaN|Infinity", text)

    assert run.metrics()[-1]["loss.train"] is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *product(
            READERS, (b"[]\n", b"7\n", b'{"a": \n', b"\xff\0\n", b"[" * 2_000 + b"\n")
        ),
        *((name, b"{}\n") for name in READERS if name != "reference_lines.json"),
        ("about.json", b'{"name": 3, "comment": "", "overridden": []}'),
        ("about.json", b'{"name": "mlm", "comment": "", "overridden": "seed"}'),
        ("status.json", b'{"status": [], "details": ""}'),
        ("status.json", b'{"status": "asleep", "details": ""}'),
        ("corpus.json", b'{"name": "play"}'),
        ("corpus.json", b'{"name": "play", "sha256": NaN}'),
        ("reference_lines.json", b'{"counting": NaN}'),
        ("reference_lines.json", b'{"counting": 1e999}'),
        ("reference_lines.json", b'{"counting": "1.2"}'),
        ("config.yaml", b'{"training.stages": 3, "masking.masking_prob": 0.1}'),
        (
            "config.yaml",
            b"{training.stages: [{masking_prob: x}], masking.masking_prob: 0.1}",
        ),
        ("metrics.jsonl", row_with(seconds="3")),
        ("metrics.jsonl", row_with(seconds=None)),
        ("metrics.jsonl", row_with(seq_len=32.5)),
        ("metrics.jsonl", b'{"step": 1}\n'),
        ("events.jsonl", b'{"event": "noted", "step": true}\n'),
    ],
)
def test_damaged_content_is_one_line_that_names_the_file(run, name, content):
    (run.path / name).write_bytes(content)
    with one_line(RunFolderError, name) as error:
        READERS[name](run)

    assert len(str(error.value)) < 300


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_is_missing_or_not_a_regular_one_is_refused_at_once(run, name):
    def check_is_refused():
        with one_line(RunFolderError, f"cannot read .*{name}"):
            READERS[name](run)

    path = run.path / name
    path.unlink()

    if name.endswith(".jsonl"):
        assert READERS[name](run) == []
    else:
        check_is_refused()

    os.mkfifo(path)
    check_is_refused()


@pytest.fixture
def resumable(run):
    """A run that wrote more after its checkpoint, and stopped in the middle of a line; with the
    checkpoint's sizes."""
    sizes = run.sizes()
    run.append_metrics(metrics_row(4))
    run.append_event({"event": "noted", "step": 4})
    run.append_log("step 4")

    for path in (run.metrics_path, run.events_path, run.log_path):
        path.write_text(path.read_text() + '{"step"')

    return run, sizes


def test_truncate_leaves_the_rows_that_the_checkpoint_counts(resumable):
    run, sizes = resumable
    # without the line that is half written
    assert steps(run.metrics()) == [1, 2, 3, 4]

    run.truncate(sizes)

    assert steps(run.metrics()) == [1, 2, 3]
    assert steps(run.events()) == [1, 2, 3]
    assert run.log_path.read_text() == "step 1\nstep 2\nstep 3\n"

    run.append_metrics(metrics_row(4))

    assert steps(run.metrics()) == [1, 2, 3, 4]

    run.truncate({})

    assert run.metrics() == run.events() == []


@pytest.mark.parametrize(
    ("name", "pattern", "replacement"),
    [
        ("metrics.jsonl", r'"step": 3[^{]*', ""),  # half a row
        ("events.jsonl", r'"step": 3[^{]*', ""),
        ("metrics.jsonl", r"(?s).*", ""),  # nothing
        ("metrics.jsonl", '"chars"', '"chars '),
        ("metrics.jsonl", '"step": 2', '"stop": 2'),
    ],
)
def test_damage_in_a_counted_row_is_found_before_anything_is_cut(
    resumable, name, pattern, replacement
):
    run, sizes = resumable
    path = run.path / name
    path.write_text(re.sub(pattern, replacement, path.read_text(), count=1))
    before = contents(run)

    with one_line(RunFolderError, path.name):
        run.truncate(sizes)

    assert contents(run) == before


@pytest.mark.parametrize(
    "sizes",
    [None, [], {"metrics.jsonl": "9"}, {"metrics.jsonl": -1}, {"log.txt": math.nan}],
)
def test_invalid_sizes_are_refused(run, sizes):
    with pytest.raises(RunFolderError, match="sizes"):
        run.truncate(sizes)
    assert len(run.metrics()) == 3


def test_a_shortened_log_does_not_prevent_a_resume(resumable):
    run, sizes = resumable
    run.log_path.write_text("")
    run.truncate(sizes)

    assert run.log_path.read_text() == ""

    run.log_path.unlink()
    run.truncate(sizes)


def test_a_checkpoint_without_the_size_of_hardware_jsonl_removes_its_rows(run):
    """Checkpoints of earlier versions have no such size."""
    run.append_hardware({"step": 1, "cpu": 50.0})
    sizes = run.sizes()
    run.append_hardware({"step": 2, "cpu": 50.0})
    run.truncate(sizes)

    assert run.hardware_path.stat().st_size == sizes.pop("hardware.jsonl")

    run.truncate(sizes)

    assert run.hardware_path.read_text() == ""


def test_the_files_are_on_disk_before_their_sizes_are_taken(run, monkeypatch):
    flushed = []
    monkeypatch.setattr(run_folder, "flush", flushed.append)

    assert run.sizes() == {
        path.name: path.stat().st_size for path in flushed if path.is_file()
    }
    assert set(flushed) == {run.path, run.metrics_path, run.events_path, run.log_path}


def test_a_name_with_surrogates_reaches_the_log_and_the_config(run):
    name = "\udcff.txt"
    run.append_log(name)

    assert run.log_path.read_text().endswith("\\udcff.txt\n")

    run.save_config({"data.corpus": name})

    assert run.config() == {"data.corpus": name}

    run.save_corpus(name, "0")

    assert run.corpus()["name"] == name


def test_an_atomic_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path, monkeypatch
):
    path = tmp_path / "folder" / "file"
    files.write_atomically(path, b"old")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", Mock(side_effect=OSError))
        with pytest.raises(OSError):  # noqa: PT011
            files.write_atomically(path, b"new")

    assert list(path.parent.iterdir()) == [path]
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize(
    "path",
    [
        "/dev/zero",
        "/",
        "a\0b",
        "\ud800",
        "/nowhere/at/all",
        "x" * 5_000,
        "pipe",
        "huge",
    ],
)
def test_a_path_that_is_not_a_small_regular_file_raises_an_os_error_with_a_reason(
    tmp_path, path
):
    small = tmp_path / "small"
    small.write_bytes(b"12345")

    assert read_bytes(small, limit=5) == b"12345"

    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "huge").touch()
    os.truncate(tmp_path / "huge", 2**40)

    with pytest.raises(OSError) as error:  # noqa: PT011
        read_bytes(tmp_path / path)

    assert error.value.strerror


def test_the_lock_is_seen_while_it_is_held_and_looking_does_not_take_it(run):
    assert not run.is_locked()  # there is no file

    with run.locked():
        assert run.is_locked()
        with pytest.raises(ValueError, match="another process"), run.locked():
            pass

    for _ in range(100):
        assert not run.is_locked()

        with run.locked():
            pass

    (run.path / "lock").unlink()
    os.mkfifo(run.path / "lock")

    assert not run.is_locked()  # a pipe does not block


def test_the_last_sign_of_life_is_that_of_the_files_unless_the_run_trains(run):
    for path in run.path.iterdir():
        os.utime(path, (1_000.0, 1_000.0))

    assert run.last_heard() == 1_000.0

    with run.locked():
        assert run.last_heard() > time.time() - 60


@pytest.mark.parametrize(
    ("kind", "accepted", "refused"),
    [
        (
            float,
            [0, -1.5, 2**60, 1e300],
            [math.nan, math.inf, -math.inf, 10**400, True, "1"],
        ),
        (float, [1.0], [None, MISSING, [1.0]]),
        (int, [0, -3, 2**62], [1.0, False, 2**63, 10**5_000, "1", None, MISSING]),
        (str, ["", "a"], [1, None, MISSING, ["a"]]),
        ((str, None), ["a", None], [1, MISSING]),
        ((dict, MISSING), [{}, MISSING], [None, []]),
        ([str], [[], ["a", "b"]], ["ab", ["a", 1], None]),
        ({"a": int}, [{"a": 1}, {"a": 1, "b": 2}], [{}, {"a": "1"}, None]),
        (lambda value: value == 7, [7], [8, None]),
    ],
)
def test_a_kind_accepts_and_refuses(kind, accepted, refused):
    for value in accepted:
        assert matches(value, kind)

    for value in refused:
        assert not matches(value, kind)


def test_the_message_is_one_short_line_that_names_the_first_wrong_key():
    with one_line(ValueError, r"^status\.json is damaged: status is wrong") as error:
        checked({"status": "line\nline" * 1_000, "details": 3}, STATUS, "status.json")

    assert len(str(error.value)) < 100

    with pytest.raises(ValueError, match=r"^events.jsonl is damaged: step is missing$"):
        checked({"event": "resumed"}, EVENT, "events.jsonl")
