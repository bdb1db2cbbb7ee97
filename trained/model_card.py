"""Model cards: the README.md of an exported folder, which can be published with it as it is."""

from pathlib import Path

from data.corpus import TINY_SHAKESPEARE
from data.play.grammar import PLAY
from data.tasks.task import CHARACTER
from runs.statistics import with_error
from trained.load import Trained
from trained.saved_classifier import SavedClassifier

# Corpus -> its language, its license, and what it is. Folio's own code and weights are under the MIT license.
SOURCES = {
    TINY_SHAKESPEARE: ("en", "mit", "40,000 lines of Shakespeare's plays, in the public domain"),
    PLAY: ("art", "mit", "a play in an invented language, which Folio writes from a grammar"),
}
UNKNOWN_SOURCE = ("und", "other", "Folio knows neither its language nor its license: state both before you publish")
TOKENS = {"characters": "A token is a character", "bytes": "A token is a byte of UTF-8"}


def card(trained: Trained) -> str:
    """The card of a model or a classifier in Markdown, with the sections that users of Hugging Face's hub expect."""
    if isinstance(trained, SavedClassifier):
        pipeline = "token-classification" if trained.kind == CHARACTER else "text-classification"
        title, results, example = f"{trained.task}: a classifier", results_of(trained), "To be, or not to be"
        code = "Folio's classifier"
    else:
        pipeline, title = "fill-mask", f"{trained.run.about()['name']}: a masked language model"
        results, example = losses_of(trained), "To be, or n[MASK]t to be"
        code = "n-gram embeddings" if trained.encoder.ngrams is not None else ""
    trust = ", trust_remote_code=True" if code else ""
    why = f"\n`trust_remote_code=True` runs `modeling_folio.py`, which adds {code} to ModernBERT.\n" if code else ""
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
# {title}

Trained by Folio. {tokens}; `[MASK]` is a blank of one token. Texts have at most {trained.longest} tokens.

## Use

```python
from transformers import pipeline

model = pipeline("{pipeline}", "PATH OF THIS FOLDER"{trust})
model("{example}")
```
{why}
## Data

`{Path(corpus["name"]).name}`: {source}. Its SHA-256 is `{corpus["sha256"]}`.

## Results

{results}

## Limits

The model knows the text above and nothing else: other languages, spellings, subjects and times are foreign to it. It
repeats what the text says of people and groups. It reads a token that the text lacks as unknown. The figures above hold
for text from the same source.

## Training

Run `{run.path.name}`: `{run.command()}`
"""


def losses_of(trained: Trained) -> str:
    """The validation loss of a run and its protocol, in Markdown."""
    best = min(trained.run.metrics(), key=lambda row: row["loss.valid"])
    return f"""\
| `loss.valid` | correct | tokens seen | seconds of training |
|---|---|---|---|
| {best["loss.valid"]:.4f} nats | {best["accuracy.valid"]:.1%} | {best["chars"]:,} | {best["seconds"]:.0f} |

`loss.valid` is the mean cross-entropy of masked tokens in the last 10% of the text, which is no part of training: 38
tokens of each 256 are replaced by `[MASK]`."""


def results_of(saved: SavedClassifier) -> str:
    """What a classifier and other methods reach, and their protocol, in Markdown."""
    results = saved.results
    scores = {name: with_error(f"{score['mean']:.3f}", score["margin"]) for name, score in results["scores"].items()}
    rows = "\n".join(f"| {name} | {score} |" for name, score in scores.items())
    ceiling = f"\n| best possible | {results['ceiling']:.3f} |" if "ceiling" in results else ""
    return f"""\
The labels are {", ".join(saved.labels)}.

Accuracy on {results["test"]:,} test texts that no method has learned from, with {results["labelled"]:,} labelled texts:
the mean of {results["draws"]} draws of labels, with its 95% interval over draws and test texts.

| learned by | accuracy |
|---|---|
{rows}{ceiling}

This model is the fine-tuned one of the first draw."""
