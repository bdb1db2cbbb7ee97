"""Batches of loaders, and the places where their tokens come from."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForMaskedLM, DataCollatorForLanguageModeling
from transformers.trainer_utils import RemoveColumnsCollator

from auditing.errors import TargetError
from auditing.findings import Finding, Verdict
from auditing.masks.alignment import sources
from auditing.masks.audit import audit_measured
from auditing.masks.loader import Service
from auditing.masks.measure import measure_batches
from auditing.masks.target import read
from auditing.masks.tokens import MaskOptions
from auditing.tests.museum.tokenizers import SYLLABLES, word_pieces


class Sparing(DataCollatorForLanguageModeling):
    """Selects nothing from column 30 on."""

    def torch_call(self, examples: list[Any]) -> Any:
        batch = super().torch_call(examples)
        inputs = batch["input_ids"]
        labels = batch["labels"]
        inputs[:, 30:] = torch.where(labels == -100, inputs, labels)[:, 30:]
        labels[:, 30:] = -100
        return batch


def loader(
    made: type = DataCollatorForLanguageModeling, n_texts: int = 1200, **options: Any
) -> DataLoader[Any]:
    """Batches of 16 texts of different lengths."""
    rng = np.random.default_rng(3)
    collator = made(word_pieces(SYLLABLES))
    texts = [
        "".join(rng.choice(SYLLABLES, rng.integers(20, 60))) for _ in range(n_texts)
    ]
    examples = [{"input_ids": collator.tokenizer(text)["input_ids"]} for text in texts]
    return DataLoader(examples, batch_size=16, collate_fn=collator, **options)


def audited(target: Any) -> Sequence[Finding]:
    """All findings but what Transformers' collator does, here of a small vocabulary."""
    service = Service(target)
    measured = measure_batches(
        lambda name, *arguments: getattr(service, name)(*arguments),
        MaskOptions(workers=0),
    )
    return [
        each
        for each in audit_measured(measured, "loader").findings
        if each.bug != "special-as-replacement"
    ]


def bugs(target: Any) -> dict[str, set[str | None]]:
    by_verdict = {verdict: set() for verdict in Verdict}
    for finding in audited(target):
        by_verdict[finding.verdict].add(finding.bug)

    return by_verdict


@pytest.mark.parametrize(
    "workers", [0, 1]
)  # with workers, the texts are read from the labels
def test_the_batches_of_a_loader(workers):
    assert bugs(loader(num_workers=workers))["broken"] == set()


class Shard(DataLoader[Any]):
    """Iterates another loader, as Accelerate's DataLoaderShard does."""

    def __init__(self, base: DataLoader[Any]):
        super().__init__(base.dataset, collate_fn=base.collate_fn)
        self.base_dataloader = base

    def __iter__(self) -> Any:
        return iter(self.base_dataloader)


class Trainer:
    """Has the method of Transformers' Trainer, and its wrappers of the collator and the loader."""

    def get_train_dataloader(self) -> Any:
        made = loader(Sparing, shuffle=True)
        made.collate_fn = RemoveColumnsCollator(
            made.collate_fn, ["input_ids", "labels"]
        )
        return Shard(made)


class InPlace:
    """Masks the texts of the dataset themselves, so that each epoch hides more."""

    def __init__(self) -> None:
        self.tokenizer = word_pieces(SYLLABLES)

    def __call__(self, texts: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        ids = [text["input_ids"] for text in texts]
        selected = [(torch.rand(one.shape) < 0.15) & (one > 4) for one in ids]
        labels = [
            torch.where(where, one, -100)
            for one, where in zip(ids, selected, strict=True)
        ]
        for one, where in zip(ids, selected, strict=True):
            one[where] = self.tokenizer.mask_token_id
        return {"input_ids": torch.stack(ids), "labels": torch.stack(labels)}


def bert(
    x: torch.Tensor, selected: torch.Tensor, random: torch.Tensor
) -> dict[str, torch.Tensor]:
    draw = torch.rand(x.shape)
    replaced = torch.where(draw < 0.8, 4, torch.where(draw < 0.9, random, x))
    return {
        "input_ids": torch.where(selected, replaced, x),
        "labels": torch.where(selected, x, -100),
    }


def natural(width: int, n_tokens: int = 300) -> torch.Tensor:
    """Windows of a text whose frequent tokens are most of it."""
    weights = 1 / torch.arange(1, n_tokens - 4)
    return 5 + torch.multinomial(weights, 2_400 * width, replacement=True).view(
        -1, width
    )


def by_frequency(x: torch.Tensor) -> torch.Tensor:
    """Random tokens of the text's frequencies."""
    return natural(x.shape[1])[: len(x)]


def rounded(x: torch.Tensor) -> torch.Tensor:
    return torch.rand(x.shape).argsort(1).argsort(1) < round(0.15 * x.shape[1])


def rounded_counts() -> list[Any]:
    batches = []
    for width in range(5, 21):
        for x in natural(width)[:128].split(16):
            batches.append(bert(x, rounded(x), torch.randint(5, 300, x.shape)))

    return batches


def single_windows() -> list[Any]:
    batches = []
    for i, row in enumerate(natural(48)[:1_200]):
        x = row[None, : 4 + i % 45]
        batches.append(
            bert(x, torch.rand(x.shape) < 0.15, torch.randint(5, 300, x.shape))
        )

    return batches


LOADERS = {
    "counts that are rounded, in batches of equal lengths": rounded_counts,
    "masked diffusion over short windows": lambda: [
        bert(
            x,
            torch.rand(x.shape) < torch.rand(len(x), 1),
            torch.randint(5, 300, x.shape),
        )
        for x in natural(9).split(16)
    ],
    "short windows": lambda: [
        bert(x, torch.rand(x.shape) < 0.15, torch.randint(5, 300, x.shape))
        for x in natural(6).split(16)
    ],
    "batches of one window": single_windows,
    "random tokens by frequency": lambda: [
        bert(x, torch.rand(x.shape) < 0.15, by_frequency(x))
        for x in natural(32).split(16)
    ],
    "selected by frequency": lambda: [
        bert(
            x, torch.rand(x.shape) < 0.1 + 0.1 * x / 300, torch.randint(5, 300, x.shape)
        )
        for x in natural(32).split(16)
    ],
}


@pytest.mark.parametrize("name", LOADERS)
def test_correct_loaders_raise_no_alarm(name):
    torch.manual_seed(2)
    batches = Prepared(LOADERS[name]())
    batches.n_tokens = 300
    batches.mask_token = 4
    batches.no_mask_tokens = [0, 1, 2, 3, 4]
    assert bugs(batches)["broken"] == set()


def test_masks_that_stay_in_the_dataset_are_found():
    collate = InPlace()
    texts = [
        {"input_ids": ids}
        for ids in torch.randint(5, len(collate.tokenizer), (1_200, 64))
    ]
    assert (
        "argument-modified"
        in bugs(DataLoader(texts, batch_size=16, collate_fn=collate, shuffle=True))[
            "broken"
        ]
    )


def test_special_tokens_that_stand_in_a_text_raise_no_alarm():
    """Some texts have a literal [MASK], others a literal [PAD]; the collator adds [CLS] and [SEP]."""
    made = loader()
    tokenizer = made.collate_fn.tokenizer
    literal = [tokenizer.mask_token_id, tokenizer.pad_token_id, None, None]
    texts = [each["input_ids"][1:-1] for each in made.dataset]
    for i, ids in enumerate(texts):
        ids[len(ids) // 3 : len(ids) // 3] = [
            id for id in [literal[i % 4]] if id is not None
        ]
    examples = [{"input_ids": ids} for ids in texts]

    def collate(batch: list[dict[str, Any]]) -> Any:
        ends = tokenizer.cls_token_id, tokenizer.sep_token_id
        return made.collate_fn(
            [{"input_ids": [ends[0], *each["input_ids"], ends[1]]} for each in batch]
        )

    collate.tokenizer = tokenizer
    assert (
        bugs(DataLoader(examples, batch_size=16, collate_fn=collate))["broken"] == set()
    )


class Growing:
    """[MASK] stays in the texts, with a label, and each epoch adds more."""

    n_tokens = 300
    mask_token = 3
    padding_token = 0
    no_mask_tokens = (0, 1, 2, 3)

    def __init__(self) -> None:
        self.texts = torch.randint(4, 300, (1_600, 48))
        self.ids = self.texts.clone()

    def __iter__(self) -> Any:
        self.ids[torch.rand(self.ids.shape) < 0.15] = 3
        for rows in torch.randperm(len(self.ids)).split(16):
            ids = self.ids[rows].clone()
            yield {
                "input_ids": ids,
                "labels": torch.where(ids == 3, self.texts[rows], -100),
            }


def test_masks_that_grow_from_epoch_to_epoch_are_found():
    torch.manual_seed(4)
    assert bugs(Growing())["broken"] == {"argument-modified"}


class Own:
    """Masks by a generator of its own; labels are taken before the masking, or `late`."""

    n_tokens = 300
    mask_token = 3
    padding_token = 0
    no_mask_tokens = (0, 1, 2, 3)

    def __init__(self, late: bool) -> None:
        self.random = np.random.default_rng(0)
        self.late = late

    def __call__(self, rows: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        x = torch.stack(rows)
        selected = torch.from_numpy(self.random.random(tuple(x.shape)) < 0.15)
        inputs = torch.where(selected, 3, x)
        return {
            "input_ids": inputs,
            "labels": torch.where(selected, inputs if self.late else x, -100),
        }


@pytest.mark.parametrize(
    ("late", "bug"), [(False, "same-masks-per-worker"), (True, "labels-corrupted")]
)
def test_bugs_in_workers_have_the_right_name(late, bug):
    texts = list(
        torch.randint(4, 300, (640, 48), generator=torch.Generator().manual_seed(0))
    )
    made = DataLoader(
        texts, batch_size=16, shuffle=True, collate_fn=Own(late), num_workers=2
    )
    findings = audited(made)
    assert bug in {each.bug for each in findings if each.verdict == Verdict.BROKEN}
    assert late or [each.found for each in findings if each.name == "wrong labels"] == [
        "not tested"
    ]


def test_the_batches_of_a_trainer():
    assert bugs(lambda: Trainer())["broken"] == {"left-truncated"}


class WithModel(Trainer):
    """Its collator has no tokenizer, and the ignored label is that of padding; the model's loss
    ignores -100."""

    def __init__(self) -> None:
        self.made = loader()
        self.processing_class = self.made.collate_fn.tokenizer
        sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
        config = BertConfig(vocab_size=len(self.processing_class), **sizes)
        self.model = BertForMaskedLM(config)

    def get_train_dataloader(self) -> Any:
        def collate(examples: list[Any]) -> Any:
            batch = self.made.collate_fn(examples)
            batch["labels"][batch["labels"] == -100] = (
                self.processing_class.pad_token_id
            )
            return batch

        return DataLoader(self.made.dataset, batch_size=16, collate_fn=collate)


def test_what_a_trainer_knows_is_used():
    assert bugs(WithModel())["broken"] == {"wrong-ignored-label"}
    trainer = WithModel()
    assert (
        Service(trainer).facts(MaskOptions(n_tokens=999)).tokens.mask
        == trainer.processing_class.mask_token_id
    )
    trainer.processing_class = None
    tokens = Service(trainer).facts(MaskOptions()).tokens
    assert (tokens.n_tokens, tokens.mask) == (trainer.model.config.vocab_size, None)
    # which may ignore any label
    trainer.compute_loss_func = lambda outputs, labels: None
    assert Service(trainer).facts(MaskOptions()).ignored is None


class Prepared(list[Any]):
    """Batches that were masked before the training."""

    tokenizer: Any = None


def prepared(n_texts: int) -> Prepared:
    torch.manual_seed(5)
    made = loader(n_texts=n_texts)
    batches = Prepared(made)
    batches.tokenizer = made.collate_fn.tokenizer
    return batches


def masked_once(shortest: int) -> DataLoader[Any]:
    """Texts of a dataset that was masked once, in random order; shorter ones are padded on the
    left."""
    torch.manual_seed(5)
    x = torch.randint(5, 300, (1_024, 48))
    batch = bert(x, torch.rand(x.shape) < 0.15, torch.randint(5, 300, x.shape))
    lengths = torch.randint(shortest, 49, (len(x),)).tolist()
    rows = []
    for i, length in enumerate(lengths):
        rows.append({name: part[i, :length] for name, part in batch.items()})

    def collate(rows: list[Any]) -> Any:
        padded = {}
        for name, fill in {"input_ids": 0, "labels": -100}.items():
            parts = [row[name] for row in rows]
            padded[name] = pad_sequence(parts, True, fill, padding_side="left")

        return padded

    collate.n_tokens = 300
    collate.mask_token = 4
    collate.padding_token = 0
    collate.no_mask_tokens = [1, 2, 3]
    return DataLoader(rows, batch_size=16, shuffle=True, collate_fn=collate)


@pytest.mark.parametrize(
    "make",
    [lambda: prepared(1200), lambda: masked_once(48), lambda: masked_once(24)],
    ids=["in order", "shuffled", "shuffled, padded"],
)
def test_batches_that_were_masked_once_are_static(make):
    found = bugs(make())
    assert found["broken"] == set()
    assert "static-masks" in found["differs"]


def test_independent_masks_of_texts_of_different_lengths_are_as_varied_as_expected():
    (counts,) = [each for each in audited(loader()) if each.name == "labels per window"]
    ratio = float(counts.evidence.removeprefix("variance ratio "))
    assert ratio == pytest.approx(1, abs=0.15)


def test_few_batches_are_not_said_to_be_independent():
    found = {each.name: each.found for each in audited(prepared(160))}
    assert (
        found["kind by anything else"]
        == found["selected by anything else"]
        == "too little was measured to tell"
    )


class OnAccelerator(torch.Tensor):
    """NumPy cannot read its memory."""

    def numpy(self):
        raise TypeError(
            "can't convert a tensor of an accelerator to numpy: use Tensor.cpu()"
        )

    def cpu(self):
        return self.as_subclass(torch.Tensor)


def test_the_batches_may_be_on_an_accelerator():
    tensor = torch.ones((2, 3), dtype=torch.long).as_subclass(OnAccelerator)
    found = read({"input_ids": tensor, "labels": tensor}, None, 0, "")
    assert found.inputs.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_what_is_no_loader_ends_in_one_line():
    with pytest.raises(
        TargetError, match="instead of a DataLoader, a Trainer, or batches"
    ):
        Service(lambda: 5)
    with pytest.raises(
        TargetError, match="must take no arguments: missing a required argument: 'path'"
    ):
        Service(lambda path: [])
    with pytest.raises(TargetError, match="the number of tokens is unknown"):
        Service([1]).facts(MaskOptions())
    with pytest.raises(TargetError, match="each iteration must give them again"):
        Service(iter([])).batches(8, 0, None)


@pytest.fixture
def text() -> np.ndarray:
    return np.random.default_rng(5).integers(5, 70, (32, 40))


@pytest.mark.parametrize("share", [0.15, 0.5])
def test_places_are_found_in_rearranged_texts(text, share):
    """Rows in another order, cut, with a token before each, in a stream of windows: with random
    tokens all over it."""
    rng = np.random.default_rng(6)
    places = np.arange(text.size).reshape(text.shape)
    cls = 2
    rows = [(text[i, :30], places[i, :30]) for i in rng.permutation(32)]
    stream = [
        np.concatenate([np.append(cls, ids) for ids, _ in rows]),
        np.concatenate([np.append(-1, at) for _, at in rows]),
    ]
    known, expected = (part.reshape(8, -1) for part in stream)
    outputs = np.where(
        (rng.random(known.shape) < share) & (known != cls),
        rng.integers(5, 70, known.shape),
        known,
    )
    found = sources(text, np.ones_like(text, dtype=bool), outputs, known)
    assert np.array_equal(found, expected)
    unlabelled = sources(text, np.ones_like(text, dtype=bool), outputs, outputs)
    assert (unlabelled == expected).mean() > (0.94 if share < 0.5 else 0.6)


def test_a_row_from_which_tokens_were_removed_is_aligned_by_its_own_content():
    """All other rows stand where they stood in the text."""
    text = np.arange(20 * 64).reshape(20, 64)
    outputs = text.copy()
    outputs[7, 30:-2] = text[7, 32:]
    outputs[7, -2:] = -5
    outputs[3, 40] = 9_999  # replaced without a label
    found = sources(text, np.ones_like(text, dtype=bool), outputs, outputs)
    expected = text.copy()
    expected[7, 30:] = [*text[7, 32:], -1, -1]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("share", [0.15, 1.0])
def test_shifted_labels_do_not_move_a_text(text, share):
    """Labels of the next token, at masked positions or at all of them."""
    random = np.random.default_rng(7).random(text.shape)
    outputs = np.where(random < 0.15, 999, text)
    labelled = (random < 0.15) if share < 1 else np.ones_like(text, dtype=bool)
    known = np.where(labelled, np.roll(text, -1, 1), text)
    found = sources(text, np.ones_like(text, dtype=bool), outputs, known)
    np.testing.assert_array_equal(found, np.arange(text.size).reshape(text.shape))


def test_equal_rows_have_no_place_of_their_own():
    text = np.tile(np.arange(40), (8, 1))
    outputs = np.where(np.random.default_rng(8).random(text.shape) < 0.15, 99, text)
    found = sources(text, np.ones_like(text, dtype=bool), outputs, outputs)
    np.testing.assert_array_equal(found, np.arange(text.size).reshape(text.shape))
