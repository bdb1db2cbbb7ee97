import os

import pytest

from runs.find import all_runs, find_run
from runs.run_folder import RunFolderError
from tests.conftest import one_line


@pytest.fixture
def logs(tmp_path):
    for age, name in enumerate(["mlm/abc1", "mlm/abc2", "other/def3"]):
        path = tmp_path / "logs" / name / "config.yaml"
        path.parent.mkdir(parents=True)
        path.write_text("seed: 0")
        os.utime(path, (1_000 + age, 1_000 + age))

    (tmp_path / "logs" / "mlm" / "broken").mkdir()  # a run that never began
    return tmp_path / "logs"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("abc1", "abc1"),
        ("d", "def3"),
        ("mlm", "abc2"),  # the latest of its name
        ("last", "def3"),
        ("{logs}/mlm/abc2", "abc2"),
    ],
)
def test_a_run_is_found_by_its_prefix_its_name_its_folder_or_as_the_last(
    logs, name, found
):
    # the oldest first
    assert [run.path.name for run in all_runs(logs)] == ["abc1", "abc2", "def3"]
    assert find_run(name.format(logs=logs), logs).path.name == found


@pytest.mark.parametrize("name", ["last", "new", "{logs}/mlm/new4"])
def test_a_run_without_its_config_is_found_too(logs, name):
    """The error then names the file that is missing."""
    folder = logs / "mlm" / "new4"
    folder.mkdir()
    (folder / "about.json").touch()

    assert find_run(name.format(logs=logs), logs).path.name == "new4"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("abc", "2 runs match 'abc'"),
        ("x", "there is no run 'x'"),
        *((name, "there is no run") for name in ("", "y" * 5_000, "\0", "\ud800")),
    ],
)
def test_a_name_that_matches_none_or_several_lists_the_runs(logs, name, message):
    with one_line(
        RunFolderError, f"{message}.*abc1 \\(mlm\\), abc2 \\(mlm\\)"
    ) as error:
        find_run(name, logs)
    assert len(str(error.value)) < 300


def test_a_name_that_another_run_begins_with_is_ambiguous(logs):
    (logs / "mlm" / "abc1").rename(logs / "mlm" / "other1")

    with one_line(RunFolderError, "2 runs match 'other'"):
        find_run("other", logs)


@pytest.mark.parametrize("prefix", ["", "hf:"])
def test_a_checkpoint_is_told_from_a_run(logs, prefix):
    (logs / "config.json").touch()

    with one_line(RunFolderError, f"make one with .* --init-from hf:{logs} "):
        find_run(f"{prefix}{logs}", logs)


@pytest.mark.parametrize("logs", [".", "loop", "x" * 5_000, "file"])
def test_logs_without_runs_are_one_line_that_says_how_to_create_one(tmp_path, logs):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "file").touch()

    with one_line(RunFolderError, r"no runs yet|cannot read"):
        find_run("last", tmp_path / logs)
