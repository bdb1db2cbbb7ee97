"""Model cards: the README.md of an exported folder, which can be published with it as it is."""

from pathlib import Path

from data.corpus import TINY_SHAKESPEARE
from data.play.grammar import PLAY
from data.tasks.task import CHARACTER
from trained.load import Trained
from trained.saved_classifier import SavedClassifier
from trained.task_results import shown

# Corpus -> its language, its license, and what it is. Folio's own code and weights are under the MIT license.
SOURCES = {
    TINY_SHAKESPEARE: ("en", "mit", "40,000 lines of Shakespeare's plays, in the public domain"),
    PLAY: ("art", "mit", "a play in an invented language, which Folio writes from a grammar"),
}
UNKNOWN_SOURCE = ("und", "other", "Folio knows neither its language nor its license: state both before you publish")
TOKENS = {"characters": "A token is a character", "bytes": "A token is a byte of UTF-8"}
PROTOCOL = """\
`loss.valid` is the mean cross-entropy of masked tokens in the last 10% of the text, which is no part of training: 38
tokens of each 256 are replaced by `[MASK]`."""
NEEDS_CODE = "`trust_remote_code=True` runs `modeling_folio.py`, which adds Folio's parts to ModernBERT."


def model_card(trained: Trained) -> str:
    """The card of a masked language model, in Markdown."""
    needs_code = trained.encoder.ngrams is not None
    use = (
        f"""\
```python
from transformers import pipeline

fill = pipeline("fill-mask", "PATH OF THIS FOLDER"{", trust_remote_code=True" * needs_code})
fill("To be, or n[MASK]t to be")
```
"""
        + f"\n{NEEDS_CODE}\n" * needs_code
    )
    return card(trained, trained.run.about()["name"], "fill-mask", "a masked language model", use, results_of(trained))


def classifier_card(saved: SavedClassifier) -> str:
    """The card of a classifier of texts or characters, in Markdown."""
    pipeline = "token-classification" if saved.kind == CHARACTER else "text-classification"
    use = f"""\
The labels are {", ".join(saved.labels)}.

```python
from transformers import pipeline

classify = pipeline("{pipeline}", "PATH OF THIS FOLDER", trust_remote_code=True)
classify("To be, or not to be")
```

{NEEDS_CODE}
"""
    return card(saved.trained, saved.task, pipeline, "a classifier", use, results_of_classifier(saved))


def card(trained: Trained, name: str, pipeline: str, kind: str, use: str, results: str) -> str:
    """A card with the sections that users of Hugging Face's hub expect."""
    run, corpus = trained.run, trained.run.corpus()
    language, license_name, source = SOURCES.get(corpus["name"], UNKNOWN_SOURCE)
    tokens = TOKENS.get(trained.vocabulary.tokens, f"It has {trained.vocabulary.n_ordinary:,} tokens")
    return f"""\
---
library_name: transformers
pipeline_tag: {pipeline}
language: {language}
license: {license_name}
---
# {name}: {kind}

Trained by Folio. {tokens}; `[MASK]` is a blank of one token. Texts have at most {trained.longest} tokens.

## Use

{use}
## Data

`{Path(corpus["name"]).name}`: {source}. Its SHA-256 is `{corpus["sha256"]}`.

## Results

{results}
## Limits

The model knows the text above and nothing else: other languages, spellings, subjects and times are foreign to it. It
repeats what the text says of people and groups. A token that the text lacks is read as unknown. The figures above hold
for text from the same source.

## Training

Run `{run.path.name}`: `{run.command()}`
"""


def results_of(trained: Trained) -> str:
    """The validation loss of a run, and its protocol."""
    best = min(trained.run.metrics(), key=lambda row: row["loss.valid"])
    return f"""\
| `loss.valid` | correct | tokens seen | seconds of training |
|---|---|---|---|
| {best["loss.valid"]:.4f} nats | {best["accuracy.valid"]:.1%} | {best["chars"]:,} | {best["seconds"]:.0f} |

{PROTOCOL}
"""


def results_of_classifier(saved: SavedClassifier) -> str:
    """The accuracy of a classifier and of other methods, and their protocol."""
    found = saved.results
    rows = [f"| {name} | {shown(score)} |" for name, score in found["scores"].items()]
    if "ceiling" in found:
        rows.append(f"| best possible | {found['ceiling']:.3f} |")
    table = "\n".join(rows)
    return f"""\
Accuracy on {found["test"]:,} test texts that no method has learned from, with {found["labelled"]:,} labelled texts: the
mean of {found["draws"]} draws of labels, with its 95% interval over draws and test texts.

| learned by | accuracy |
|---|---|
{table}

This model is the fine-tuned one of the first draw.
"""
