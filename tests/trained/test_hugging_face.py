"""Exports are opened by transformers itself."""

import json
from types import SimpleNamespace

import pytest
import torch
import transformers

from configs.keys import ConfigError
from data.tokens.bpe import train
from data.tokens.subwords import SubwordVocabulary, renumbered
from tests.conftest import SENTENCES, written
from tests.tokenizers import unigram
from tests.trained.conftest import EXTRA, of_all_tokens, of_characters, small_run
from trained.fill import fill as folio_fill
from trained.hugging_face import export, hugging_face_model, tokenizer
from trained.load import check_scores, random_ids
from trained.model_card import code, losses_of, plain, source_of
from trained.template import read_template


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    """A run and the folder it was exported to."""
    folder = tmp_path_factory.mktemp("exported") / "model"
    export(trained, folder)
    return trained, folder


def config_in(folder):
    return json.loads((folder / "config.json").read_text())


def opened(folder, auto=transformers.AutoModelForMaskedLM, **options):
    return auto.from_pretrained(folder, trust_remote_code=True, **options).eval()


@of_characters
def test_the_folder_has_the_usual_files(exported):
    trained, folder = exported
    names = {path.name for path in folder.iterdir()}
    usual = (
        "config.json model.safetensors tokenizer.json tokenizer_config.json README.md"
    )
    model_type = "modernbert"
    if trained.encoder.ngrams is not None:
        model_type = "folio"
        usual += " modeling_folio.py ngrams.py"

    assert names == set(usual.split())
    assert config_in(folder)["model_type"] == model_type
    assert trained.run.path.name in (folder / "README.md").read_text()


ROW = {
    "loss.valid": 1.5,
    "accuracy.valid": None,
    "chars": 512,
    "seconds": 2.0,
    "loss.bound": None,
}


@pytest.mark.parametrize(
    ("rows", "text"),
    [([], "lost its metrics.jsonl"), ([ROW], "| 1.5000 nats | unknown | 512 | 2 |")],
)
def test_the_card_of_a_run_without_figures_says_so(rows, text):
    run = SimpleNamespace(suffix="", metrics=lambda: rows, corpus=dict)
    assert text in losses_of(run)


def test_the_card_says_how_many_windows_its_loss_is_of():
    run = SimpleNamespace(
        suffix="", metrics=lambda: [ROW | {"validation_windows": 64}], corpus=dict
    )
    card = losses_of(run)
    assert "64 windows of the last 10%" in card


def test_the_card_of_a_run_on_documents_says_what_they_were():
    corpus = {"name": "a.jsonl", "sha256": "0", "contents": "4,278 documents"}
    run = SimpleNamespace(suffix="", metrics=lambda: [ROW], corpus=lambda: corpus)

    assert "Trained on `a.jsonl`: 4,278 documents; " in source_of(run)[1]
    assert "in the validation documents" in losses_of(run)


@of_characters
def test_a_card_names_no_folder_of_this_machine(exported, text_file):
    _, folder = exported
    card = (folder / "README.md").read_text()

    assert f"data.corpus={text_file.name}" in card
    assert str(text_file.parent) not in card


def test_markdown_of_a_user_is_shown_as_it_is():
    assert plain("<script>|`a\n\x1b") == r"\<script\>\|\`a\\n\\x1b"
    assert code("`<b>`\n") == "`'<b>'\\n`"


@of_all_tokens
def test_logits_are_those_of_the_run(exported):
    trained, folder = exported
    model = opened(folder)
    check_scores(trained, lambda ids, mask: model(ids, attention_mask=mask).logits)

    ids = random_ids(trained, 1, 64)
    with torch.no_grad():
        unknown = model(ids).logits[..., trained.vocabulary.n_tokens :]

    assert (unknown < -1_000).all()  # [UNK] is never predicted if the run lacks it


@of_characters
def test_it_opens_in_bfloat16(exported):
    _, folder = exported
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        narrow = opened(folder, dtype=torch.bfloat16)(ids).logits
        assert narrow.dtype == torch.bfloat16
        assert torch.allclose(
            narrow.float(), opened(folder)(ids).logits, rtol=0.1, atol=0.2
        )


@of_all_tokens
def test_the_tokenizer_has_the_ids_of_the_vocabulary(exported):
    trained, folder = exported
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    vocabulary = trained.vocabulary

    texts = [
        "the cat\n sat  on, the mat.\nCome in, O King!\n",
        "why do the birds sing?",
    ]
    for text in texts:
        ids = tokenizer(text)["input_ids"]
        assert ids == vocabulary.encode(text).tolist()

        if vocabulary.tokens in ("characters", "bytes"):
            assert tokenizer.decode(ids) == text

    if not vocabulary.is_characters or vocabulary.unknown_token is not None:
        assert tokenizer(EXTRA)["input_ids"] == vocabulary.encode(EXTRA).tolist()
    if vocabulary.is_characters:
        special = [tokenizer.mask_token_id, tokenizer.unk_token_id]
        assert tokenizer("a[MASK]é")["input_ids"][1:] == special

    assert tokenizer.mask_token_id == vocabulary.mask_token
    assert tokenizer.pad_token_id == vocabulary.padding_token
    assert vocabulary.unknown_token in (None, tokenizer.unk_token_id)
    assert config_in(folder)["unk_token_id"] == tokenizer.unk_token_id


@of_characters
def test_special_tokens_survive_saving(exported, tmp_path):
    _, folder = exported
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = opened(folder)
    tokenizer.save_pretrained(tmp_path / "again")
    model.save_pretrained(tmp_path / "again")

    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")

    assert again.special_tokens_map == tokenizer.special_tokens_map
    assert again.model_max_length == 64

    ids = torch.tensor([again("the c[MASK]t").input_ids])
    with torch.no_grad():
        assert torch.equal(opened(tmp_path / "again")(ids).logits, model(ids).logits)


@of_all_tokens
def test_fill_mask_fills(exported):
    trained, folder = exported
    fill = transformers.pipeline("fill-mask", str(folder), trust_remote_code=True)
    template = "the c[MASK]t sat on the mat."
    guesses = fill(template)
    ours_template = read_template(template, trained.vocabulary)
    ((text, [ours]),) = folio_fill(trained, [ours_template], n_candidates=5)

    best = guesses[0]

    assert 0 <= best["token"] < trained.vocabulary.n_ordinary

    if trained.vocabulary.is_characters:
        characters = [character for character, _ in ours.candidates]
        assert [guess["token_str"] for guess in guesses] == characters
        assert best["sequence"] == text
        # There, special tokens have a share.
        assert 0.9 * ours.probability < best["score"] < ours.probability + 1e-4


@of_characters
def test_the_encoder_and_a_classifier_open_too(exported):
    trained, folder = exported
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(["the cat", "a red door"], padding=True, return_tensors="pt")
    with torch.no_grad():
        vectors = opened(folder, transformers.AutoModel)(**batch).last_hidden_state
        expected = trained.model.encoder(batch["input_ids"][:1, :7])

    assert torch.allclose(vectors[0, :7], expected[0], atol=1e-4)

    auto = transformers.AutoModelForSequenceClassification
    classifier = opened(folder, auto, num_labels=3).train()
    if trained.encoder.ngrams is not None:  # the decoder gives the surprise
        assert torch.equal(
            classifier.decoder.weight, classifier.get_input_embeddings().weight
        )

    optimizer = torch.optim.AdamW(classifier.parameters(), lr=1e-2)

    losses = []
    for _ in range(5):
        losses.append(classifier(**batch, labels=torch.tensor([0, 2])).loss)
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()

    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    "keys", [{"objective__nsp": True}, {"model__architecture": "labml_nn"}]
)
def test_other_models_are_refused(tmp_path, keys):
    text = written(tmp_path / "play.txt", "ANN:\nthe cat sat on the mat.\n\n" * 2_000)
    keys |= {"training__max_steps": 1, "training__optimizer": "adamw"}
    trained = small_run(tmp_path / "run", text, **keys)

    with pytest.raises(ConfigError, match="architecture"):
        hugging_face_model(trained)


LINES = "".join(SENTENCES)
BPE = renumbered(train(LINES, 300))
UNIGRAM = renumbered(json.loads(unigram(LINES).to_str()))


@pytest.mark.parametrize(
    "tokenizer_of_subwords", [BPE, UNIGRAM], ids=["bpe", "unigram"]
)
def test_tokens_between_documents_keep_their_ids(tokenizer_of_subwords):
    """In a tokenizer without [UNK] and in one with it."""
    vocabulary = SubwordVocabulary(tokenizer_of_subwords, ("[PAD]", "[MASK]", "[SEP]"))
    exported = tokenizer(vocabulary, 64)

    for token in vocabulary.special_tokens:
        assert exported.convert_tokens_to_ids(token) == vocabulary.id_of(token)

    unknown = vocabulary.unknown_token or vocabulary.n_tokens
    assert exported.unk_token_id == unknown
