import pytest
import torch

from benchmarks.documents import SEQ_LEN, losses_of, masker_of, trained_by_trainer
from benchmarks.models import modernbert
from configs.experiment import configs_of
from trained.load import load_trained


@pytest.fixture
def trained(train, tmp_path):
    """A run on short documents, several of which fill a window."""
    corpus = tmp_path / "lines.txt"
    corpus.write_text("".join(f"{n} and {n * n}\n" for n in range(900)))
    made = train(
        data__corpus=str(corpus), data__documents="lines", training__max_steps=2
    )
    return load_trained(str(made.run.path))


def test_documents_alone_have_the_loss_that_the_run_reports(trained):
    validation = trained.data().validation_set
    assert validation.attention_mask.amax() > 1  # windows with several documents
    losses = torch.cat([*losses_of(trained, trained.model)])
    assert len(losses) == validation.masked.sum()
    loss = trained.run.metrics()[-1]["loss.valid"]
    assert losses.mean().item() == pytest.approx(loss, abs=1e-5)


def test_trainer_trains_on_masked_windows(trained):
    configs = configs_of(trained.values).model
    configs.n_tokens = trained.vocabulary.n_tokens
    model = modernbert(configs).model
    before = [weight.clone() for weight in model.parameters()]
    text = "123 and 4 " * 640
    windows = trained.vocabulary.encode(text).view(-1, SEQ_LEN)
    assert trained_by_trainer(model, windows, masker_of(trained), 1e-3) > 0
    changed = [
        not torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True)
    ]
    assert all(changed)
