"""Whatever a command line or a config file holds: a run can be built from it, or one line says what is wrong."""

import contextlib
import io
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from configs.command_line import SETTINGS, parse, read_config, resolve
from configs.keys import ConfigError
from configs.one_line import fail
from runs.run_folder import RunFolderError
from tests.conftest import ROOT

ROWS = st.dictionaries(
    st.sampled_from(["until", "seq_len", "masking_prob", "random", "x"]),
    st.floats() | st.integers() | st.text(max_size=3),
    max_size=3,
)
LIKELY = st.sampled_from(["random", "span", "quick", "cpu", "cuda:9", "1e3", "none", "[", "{until: 1.0}", "mixture"])
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), LIKELY, st.lists(ROWS, max_size=3)
)
KEYS = st.sampled_from(sorted(SETTINGS))
WORDS = st.one_of(
    st.text(max_size=30),
    st.builds(lambda key, value: f"{key}={value}", KEYS, VALUES),
    st.sampled_from(
        ["--preset", "--config", "--resume", "--seeds", "--seeds=2", "-x", "=", "a=b=c", "--", "last", "quick"]
    ),
)


def parsed(arguments: list[str]) -> None:
    said = io.StringIO()
    try:
        command = parse(arguments)
        assert set(command.values) == set(SETTINGS)
    except (ConfigError, RunFolderError) as error:
        with contextlib.redirect_stderr(said):
            fail(error)
    assert len(said.getvalue().splitlines()) <= 1


@settings(max_examples=300, deadline=None)
@given(arguments=st.lists(WORDS.filter(lambda word: word not in ("-h", "--help")), max_size=5))
def test_any_command_line_is_understood_or_refused_in_one_line(arguments):
    parsed(arguments)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.dictionaries(KEYS | st.text(max_size=8), VALUES, max_size=5) | VALUES)
def test_any_yaml_is_understood_or_refused_in_one_line(content, tmp_path):
    path = tmp_path / "any.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    parsed(["--config", str(path)])


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200))
def test_any_bytes_for_a_config_file_are_understood_or_refused_in_one_line(content, tmp_path):
    path = tmp_path / "any.yaml"
    path.write_bytes(content)
    parsed(["--config", str(path)])


@settings(max_examples=200, deadline=None)
@given(values=st.dictionaries(KEYS, VALUES, max_size=4))
def test_what_was_accepted_once_is_accepted_as_it_was_written_down(values, tmp_path_factory):
    try:
        resolved = resolve({key: SETTINGS[key].parse(value) for key, value in values.items()}, {})
    except ConfigError:
        return
    path: Path = tmp_path_factory.mktemp("configs") / "config.yaml"
    path.write_text(yaml.safe_dump(resolved, allow_unicode=True), encoding="utf-8")
    assert resolve(read_config(path), {}) == resolved


@pytest.mark.parametrize(
    "content",
    [
        "!!python/object/apply:os.system ['touch {marker}']",
        "seed: !!python/object/apply:os.system ['touch {marker}']",
        "a: &a [*a]",
        "&a [*a, *a]",
        "training.stages: &s [{until: 1.0, seq_len: 8, x: *s}]",
        "seed: 0x" + "f" * 5000,
        "{{{{",
    ],
)
def test_a_strangers_config_runs_nothing(content, tmp_path):
    marker, path = tmp_path / "executed", tmp_path / "stranger.yaml"
    path.write_text(content.replace("{marker}", str(marker)))
    command = [sys.executable, "experiment.py", "--config", str(path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2, result.stderr
    assert result.stderr.count("\n") == 1
    assert not marker.exists()
