"""`evaluate.py RUN --pairs`: pseudo-log-likelihoods of minimal pairs, as transformers computes them."""

import json
import re

import pytest
import torch

import evaluate
import experiment
import export
from runs.statistics import share_interval
from tests.checkpoints import checkpoint
from tests.conftest import only_run, written
from tests.trained.conftest import of_all_tokens
from tests.trained.test_hugging_face_checkpoint import KEYS
from trained.load import load_trained
from trained.score import scores_of
from trained.template import ids_of

WORD = re.compile(r"\w+|[^\w\s]")


def exported(trained, folder):
    assert export.main([str(trained.run.path), "--to", "huggingface", str(folder)]) == 0
    return str(folder)


def of_transformers(folder, text, within_words=False):
    """The score of a text by the steps of the backend `mlm` of babylm-org/babylm-eval, but special
    tokens have no probability; and with the later tokens of a word masked too."""
    from transformers import AutoModelForMaskedLM, AutoProcessor

    processor = AutoProcessor.from_pretrained(
        folder, padding_side="right", trust_remote_code=True
    )
    model = AutoModelForMaskedLM.from_pretrained(folder, trust_remote_code=True).eval()
    output = processor(text=text, return_offsets_mapping=True)
    tokens = torch.tensor(output["input_ids"])
    offsets = output["offset_mapping"]
    indices = [i for i, (_, end) in enumerate(offsets) if end > 0]
    inputs = tokens.repeat(len(indices), 1)
    for row, index in enumerate(indices):
        inputs[row, index] = processor.mask_token_id
        for later in indices:
            is_same = word_at(text, offsets[later]) == word_at(text, offsets[index])
            if within_words and later > index and is_same:
                inputs[row, later] = processor.mask_token_id
    mask = torch.tensor([output["attention_mask"]] * len(indices))
    with torch.no_grad():
        logits = model(input_ids=inputs, attention_mask=mask)["logits"]
    logits[:, :, processor.all_special_ids] = -torch.inf
    logits[:, :, len(processor) :] = -torch.inf  # rows without a token
    rows = torch.arange(len(indices))
    log_probs = logits[rows, indices].double().log_softmax(-1)
    return log_probs[rows, tokens[indices]].sum().item()


def word_at(text, offsets):
    """The place of the word of a token; a space is part of the word after it."""
    first = len(text) - len(text[offsets[0] :].lstrip())
    places = [match.span() for match in WORD.finditer(text)]
    return next(place for place in places if place[0] <= first < place[1])


@of_all_tokens
def test_an_export_has_the_scores_of_its_run_in_the_pipeline_of_babylm(
    trained, sentences, tmp_path
):
    texts = sentences.splitlines()[:3]
    folder = exported(trained, tmp_path / "folder")
    ids = [ids_of(text, trained.vocabulary) for text in texts]

    for within_words in (False, True):
        expected = [of_transformers(folder, text, within_words) for text in texts]
        scores = scores_of(trained, ids, within_words)
        assert scores == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", ["bert", "roberta", "modernbert"])
def test_a_checkpoint_of_hugging_face_has_its_scores(name, tmp_path, text_file):
    folder = checkpoint(tmp_path / "model", name, text_file.read_text())
    values = KEYS | {"data.corpus": text_file, "logs": tmp_path / "logs"}
    keys = [f"{key}={value}" for key, value in values.items()]
    assert experiment.main(["--init-from", f"hf:{folder}", *keys]) == 0
    trained = load_trained(str(only_run(tmp_path / "logs").path))
    texts = ["The cat sat, and sat.", "a dog"]
    ids = [ids_of(text, trained.vocabulary) for text in texts]

    for within_words in (False, True):
        expected = [of_transformers(folder, text, within_words) for text in texts]
        scores = scores_of(trained, ids, within_words)
        assert scores == pytest.approx(expected, rel=1e-4)


def test_pairs_are_counted_per_file_with_intervals_and_ties(
    plain, tmp_path, printed, refusal
):
    good = "the cat sat on the mat."
    rows = [
        {"UID": "order", "sentence_good": good, "sentence_bad": bad}
        for bad in ("hte cta sta no eth tma.", "ttt ccc sss ooo ttt mmm.", good)
    ]
    lines = "\n".join(map(json.dumps, rows))
    blimp = written(tmp_path / "blimp.jsonl", lines)
    table = written(
        tmp_path / "table.tsv",
        f"right\twrong\tid\nhte cta sta no eth tma.\t{good}\t1\n",
    )
    run = str(plain.run.path)
    for option, rule in (([], "PLL"), (["--within-words"], "PLL-word-l2r")):
        output = printed(evaluate.main, run, "--pairs", str(blimp), str(table), *option)
        assert "table.tsv: reads the columns right and wrong" in output
        assert re.search(r"blimp.jsonl +3 +0.667  0.208 to 0.939 +1\n", output)
        assert re.search(r"all +4 +0.500 ", output)
        results = json.loads((plain.run.path / "pairs.json").read_text())[rule]
        assert results["table.tsv"]["right"] == results["table.tsv"]["ties"] == 0

    empty = written(tmp_path / "empty.tsv", "good\tbad\n")
    one = written(tmp_path / "one.csv", "text\nthe cat\n")
    half = written(tmp_path / "half.csv", "a,b\nthe cat,\n")
    assert "has no pairs" in refusal(evaluate.main, run, "--pairs", str(empty))
    assert "has no pairs" in refusal(evaluate.main, run, "--pairs", str(one))
    assert "row 1 of" in refusal(evaluate.main, run, "--pairs", str(half))
    (tmp_path / "other").mkdir()
    same = written(tmp_path / "other" / "table.tsv", table.read_text())
    line = refusal(evaluate.main, run, "--pairs", str(table), str(same))
    assert "two files are called table.tsv" in line
    assert "needs --pairs" in refusal(evaluate.main, run, "--within-words")


def test_the_interval_of_a_share_is_that_of_wilson():
    assert share_interval(0, 10) == pytest.approx((0, 0.2775), abs=1e-4)
    assert share_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
