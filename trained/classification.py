"""Fine-tunes a masked language model to classify texts.

A text's vector is the mean of the encoder's vectors over its characters; a linear layer gives a score per label. Texts
differ in length and the model does not support padding, so each text has a forward and a backward pass of its own. A
step of the optimizer uses the mean of the batch's gradients.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trained.load import Trained
from training.optimizers import adamw, gradients_of, set_learning_rate

EPOCHS = 10
BATCH_SIZE = 16
TABLE_RATE = 5  # the rate of the n-gram table, as a multiple of the others' rate
WEIGHT_DECAY = 0.01
WARMUP = 0.1  # of the steps


class Classifier(nn.Module):
    """Token ids `[length]` to scores `[n_labels]`."""

    def __init__(self, encoder: nn.Module, d_model: int, n_labels: int):
        super().__init__()
        self.encoder = encoder
        self.output = nn.Linear(d_model, n_labels)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, ids: Tensor) -> Tensor:
        return self.output(vector(self.encoder, ids))


def vector(encoder: nn.Module, ids: Tensor) -> Tensor:
    """The vector `[d_model]` of a text `[length]`."""
    return encoder(ids.unsqueeze(0)).mean(1).squeeze(0)


def encoded(texts: Sequence[str], trained: Trained) -> list[Tensor]:
    """Token ids of each text, at most as many as in the windows of training; for a text without tokens, `[MASK]`.

    Characters that the run does not know become `[UNK]` if the run has it, otherwise `[MASK]`.
    """
    vocabulary = trained.vocabulary
    if not vocabulary.is_characters:
        found = [vocabulary.encode(text)[: trained.longest] for text in texts]
        return [ids if len(ids) else torch.tensor([vocabulary.mask_token]) for ids in found]
    ids = {character: vocabulary.id_of(character) for character in vocabulary.characters}
    unknown = vocabulary.mask_token if vocabulary.unknown_token is None else vocabulary.unknown_token
    return [torch.tensor([ids.get(c, unknown) for c in text]) for text in texts]


def fine_tune(
    encoder: nn.Module, texts: Sequence[Tensor], labels: Sequence[int], *, d_model: int, learning_rate: float, seed: int
) -> Classifier:
    """Train a classifier, encoder included, on texts and their labels 0, 1, ..."""
    classifier = Classifier(encoder, d_model, max(labels) + 1).train()
    optimizers = adamw(
        classifier,
        learning_rate=learning_rate,
        table_learning_rate=TABLE_RATE * learning_rate,
        weight_decay=WEIGHT_DECAY,
    )
    generator = torch.Generator().manual_seed(seed)
    batches = [b for _ in range(EPOCHS) for b in torch.randperm(len(texts), generator=generator).split(BATCH_SIZE)]
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)  # for dropout
        for step, batch in enumerate(batches):
            progress = step / len(batches)
            set_learning_rate(optimizers, min((progress + 1 / len(batches)) / WARMUP, (1 - progress) / (1 - WARMUP)))
            for i in batch.tolist():
                loss = F.cross_entropy(classifier(texts[i]), torch.tensor(labels[i]))
                (loss / len(batch)).backward()
            gradients_of(classifier)  # coalesces those of tables
            for optimizer in optimizers:
                optimizer.step()
            classifier.zero_grad()
    return classifier.eval()


@torch.inference_mode()
def predictions(classifier: Classifier, texts: Sequence[Tensor]) -> list[int]:
    """The label with the highest score, for each text."""
    return [int(classifier(ids).argmax()) for ids in texts]


@torch.inference_mode()
def vectors(encoder: nn.Module, texts: Sequence[Tensor]) -> Tensor:
    """The vectors `[n_texts, d_model]` of texts, for a linear probe."""
    return torch.stack([vector(encoder, ids) for ids in texts])
