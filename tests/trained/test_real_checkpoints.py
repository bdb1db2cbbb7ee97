"""Checkpoints that people use; `tests.fetched` has them."""

import pytest
import torch
import transformers

import experiment
import export
from tests.conftest import needed, only_run, written
from tests.fetched import ANTIBERTY, MINILM
from tests.trained.test_hugging_face_checkpoint import KEYS, loss_of_transformers
from trained.load import load_trained

ENGLISH = "Sphinx of black quartz, judge my vow! Ångström's 3.14 units — naïve café.\n"


@pytest.fixture
def started(tmp_path, printed):
    """Starts a run with a real checkpoint and a text; returns the trained run and what was printed."""

    def start(folder, text, **keys):
        needed(folder.exists(), "needs the network once: python -m tests.fetched")
        corpus = written(tmp_path / "text.txt", text)
        values = KEYS | {"data.corpus": corpus, "logs": tmp_path / "logs", **keys}
        words = [f"{key}={value}" for key, value in values.items()]
        output = printed(experiment.main, "--init-from", f"hf:{folder}", *words)
        return load_trained(str(only_run(values["logs"]).path)), output

    return start


def proteins(n):
    """Random antibodies: frames with variable letters, which have spaces between."""
    generator = torch.Generator().manual_seed(0)
    letters = "ACDEFGHIKLMNPQRSTVWY"
    lines = []
    for _ in range(n):
        loop = torch.randint(20, (12,), generator=generator).tolist()
        variable = "".join(letters[i] for i in loop)
        lines.append(" ".join(f"EVQLVESGGGLVQPGGSLRLSCAAS{variable}WVRQAPGKGLEWVS"))
    return "\n".join(lines)


@torch.no_grad()
def test_an_encoder_keeps_its_vectors_and_its_tokens(started):
    trained, output = started(MINILM, ENGLISH * 300)
    model = transformers.AutoModel.from_pretrained(MINILM).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(MINILM)
    inputs = tokenizer(ENGLISH, return_tensors="pt")

    ids = trained.vocabulary.encode(ENGLISH)
    vectors = trained.encoder(ids[None])
    expected = model(**inputs).last_hidden_state[:, 1:-1]

    assert "has no head" in output
    assert vectors.shape == expected.shape
    assert torch.allclose(vectors, expected, atol=1e-5)


@pytest.mark.slow
def test_a_masked_language_model_of_proteins_is_continued_and_comes_back(
    started, tmp_path
):
    """Its weights are in a file of PyTorch's, which is read without executing anything."""
    text = proteins(300)
    trained, _ = started(ANTIBERTY, text)
    (row,) = trained.run.metrics()
    before = loss_of_transformers(ANTIBERTY, trained)
    assert row["loss.valid"] == pytest.approx(before, abs=1e-5)

    keys = {"logs": tmp_path / "logs" / "trained", "training.max_steps": 4}
    trained, _ = started(ANTIBERTY, text, **keys)
    back = tmp_path / "back"
    words = [str(trained.run.path), "--to", "huggingface", str(back)]
    assert export.main(words) == 0

    after = loss_of_transformers(back, trained)
    (row,) = trained.run.metrics()
    assert row["loss.valid"] == pytest.approx(after, abs=1e-5)
    assert after < before
