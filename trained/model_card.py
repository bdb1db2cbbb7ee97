"""Model cards: the README.md of an exported folder, which can be published with it as it is."""

from pathlib import Path
from typing import NamedTuple

from data.corpus import TINY_SHAKESPEARE
from data.play.grammar import PLAY
from data.tasks.task import CHARACTER
from runs.statistics import with_error
from trained.load import Trained
from trained.saved_classifier import SavedClassifier


class Source(NamedTuple):
    """The facts about a text on a card."""

    language: str
    license: str
    description: str
    example: str


SOURCES = {  # corpus -> the text; Folio's own code is under the MIT license
    TINY_SHAKESPEARE: Source(
        "en", "mit", "40,000 lines by Shakespeare, in the public domain", "To be, or not to be"
    ),
    PLAY: Source(
        "art",
        "mit",
        "a play in an invented language, written from a grammar",
        "Ne daz rants iv Insk darku",
    ),
}
UNKNOWN = Source(
    "und",
    "other",
    "state its language, license and origin here before you publish",
    "a text of your own",
)
TOKENS = {"characters": "A token is a character", "bytes": "A token is a byte of UTF-8"}


def card(trained: Trained) -> str:
    """The card of a model or a classifier in Markdown, with the sections that users of Hugging
    Face's hub expect."""
    run, corpus = trained.run, trained.run.corpus()
    source, commands = (
        SOURCES.get(corpus["name"], UNKNOWN),
        f"Run `{run.path.name}`: `{run.command()}`",
    )
    texts = [
        f"Trained on `{Path(corpus['name']).name}`: {source.description}. Its SHA-256 is `{corpus['sha256']}`."
    ]
    if isinstance(trained, SavedClassifier):
        pipeline = "token-classification" if trained.kind == CHARACTER else "text-classification"
        # a file of the user and its digest, or the name of a task
        file, _, name = trained.task.rpartition(" ")
        name = file or name
        if file:
            source = UNKNOWN
            texts.append(f"Fine-tuned on labelled texts, `{name}`: {source.description}.")
        title, results, example = f"{name}: a classifier", results_of(trained), source.example
        code, size = "Folio's classifier", trained.results["labelled"]
        commands = f"`{run.command()}`, then `python finetune.py RUN --task {name} --labels {size} --save FOLDER`"
    else:
        pipeline, title = "fill-mask", f"{run.about()['name']}: a masked language model"
        results, example = losses_of(trained), f"{source.example[:11]}[MASK]{source.example[12:]}"
        code = "n-gram embeddings" if trained.encoder.ngrams is not None else ""
    trust = ", trust_remote_code=True" if code else ""
    why = (
        f"\n`trust_remote_code=True` runs `modeling_folio.py`, which adds {code} to ModernBERT.\n"
        if code
        else ""
    )
    tokens = TOKENS.get(
        trained.vocabulary.tokens, f"It has {trained.vocabulary.n_ordinary:,} tokens"
    )
    return f"""\
---
library_name: transformers
pipeline_tag: {pipeline}
language: {source.language}
license: {source.license}
---
# {title}

Made with Folio. {tokens}. Texts have at most {trained.longest} tokens; longer ones must be cut.

## Use

```python
from transformers import pipeline

model = pipeline("{pipeline}", "PATH OF THIS FOLDER"{trust})
model("{example}")
```
{why}
## Data

{chr(10).join(texts)}

## Results

{results}

## Limits

The model knows only texts like these. It fails on other languages, spellings and subjects, repeats what its texts say
of people and groups, and reads tokens that they lack as unknown. Its figures hold for text from the same source.

## Training

{commands}
"""


def losses_of(trained: Trained) -> str:
    """The validation loss of a run and its protocol, in Markdown."""
    rows = trained.run.metrics()
    if not rows:
        return "Unknown: the run has lost its metrics.jsonl."
    decisive = "loss.bound" if "loss.bound" in rows[-1] else "loss.valid"
    best = min((row for row in rows if decisive in row), key=lambda row: row[decisive])
    return f"""\
| `loss.valid` | correct | tokens seen | seconds of training |
|---|---|---|---|
| {best["loss.valid"]:.4f} nats | {best["accuracy.valid"]:.1%} | {best["chars"]:,} | {best["seconds"]:.0f} |

`loss.valid` is the mean cross-entropy of masked tokens in the last 10% of the text, which training never
sees. 38 tokens of each 256 are replaced by `[MASK]`."""


def results_of(saved: SavedClassifier) -> str:
    """The scores of a classifier and of other methods, and their protocol, in Markdown."""
    results = saved.results
    scores = {
        name: with_error(f"{score['mean']:.3f}", score["margin"])
        for name, score in results["scores"].items()
    }
    rows = "\n".join(f"| {name} | {score} |" for name, score in scores.items())
    ceiling = f"\n| best possible | {results['ceiling']:.3f} |" if "ceiling" in results else ""
    mean = f"the mean of {results['draws']} draws of labels, with its 95% interval over draws and test texts"
    protocol = mean if results["draws"] > 1 else "one draw of labels"
    return f"""\
The labels are {", ".join(saved.labels)}.

Accuracy on {results["test"]:,} test texts that no method has learned from, with {results["labelled"]:,} labelled texts:
{protocol}.

| learned by | accuracy |
|---|---|
{rows}{ceiling}

This model is the fine-tuned one of the first draw. Its own accuracy is {results["first draw"]:.3f}."""
