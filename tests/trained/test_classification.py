import copy

import torch

from trained.classification import encoded, fine_tune, predictions

LABELS = [0, 1] * 20
TEXTS = [("the cat sat", "a dog ran")[label] + " on"[: i % 4] for i, label in enumerate(LABELS)]


def classified(trained, learning_rate=3e-3, seed=0):
    ids = encoded(TEXTS, trained)
    encoder = copy.deepcopy(trained.model.encoder)
    classifier = fine_tune(encoder, ids, LABELS, d_model=32, learning_rate=learning_rate, seed=seed)
    return classifier, ids


def test_fine_tuning_learns_labels_and_changes_the_encoder(with_ngrams):
    classifier, ids = classified(with_ngrams)
    assert predictions(classifier, ids) == LABELS
    before, after = with_ngrams.model.encoder.state_dict(), classifier.encoder.state_dict()
    assert {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])} >= {"ngrams", "layers"}


def test_the_same_seed_gives_the_same_weights(with_ngrams, monkeypatch):
    monkeypatch.setattr("trained.classification.EPOCHS", 1)
    (first, _), (second, _), (other, _) = (classified(with_ngrams, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.output.weight, second.output.weight)
    assert not torch.equal(first.output.weight, other.output.weight)


def test_unknown_characters_become_masks(with_ngrams):
    known, unknown = encoded(["cat", "cüt"], with_ngrams)
    vocabulary = with_ngrams.vocabulary
    assert vocabulary.decode(known) == "cat"
    assert unknown.tolist() == [known[0], vocabulary.mask_token, known[2]]
