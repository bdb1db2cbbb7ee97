"""A run that was moved to another folder continues there, as often as wanted."""

import shutil

import pytest

from experiment import main
from runs.run_folder import RunFolder


@pytest.mark.parametrize("target", ["archive/0123456789ab", "renamed"])
def test_a_moved_run_resumes_in_its_own_folder_as_often_as_wanted(train, tmp_path, corpus_file, capsys, target):
    logs = tmp_path / "logs"
    began = logs / "mlm" / "0123456789ab"
    train(data__corpus=str(corpus_file), logs=str(logs), training__max_steps=2, folder=began)
    moved = logs / target
    moved.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(began, moved)
    began.mkdir()
    (began / "run.pid").write_text("1")  # as an earlier version of Folio left it
    for steps in (4, 6):
        assert main(["--resume", str(moved), f"training.max_steps={steps}"]) == 0, capsys.readouterr().err
        assert RunFolder(moved).metrics()[-1]["step"] == steps
    assert [path.name for path in began.iterdir()] == ["run.pid"]
    assert "name: mlm" in (moved / "run.yaml").read_text()
