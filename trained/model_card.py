"""Model cards: the README.md of an exported folder, which can be published with it as it is."""

import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from data.corpus import TINY_SHAKESPEARE
from data.play.grammar import PLAY
from data.tasks.task import CHARACTER
from runs.run_folder import RunFolder
from runs.schema import is_number
from runs.statistics import with_error
from runs.terminal import in_one_line
from trained.examples import ACCURACY, MEAN_RECALL
from trained.load import Trained
from trained.saved_classifier import SavedClassifier


class Source(NamedTuple):
    """The facts about a text on a card."""

    language: str
    license: str
    description: str
    example: str


# Folio's own code is under the MIT license
SHAKESPEARE = Source(
    "en",
    "mit",
    "40,000 lines by Shakespeare, in the public domain",
    "To be, or not to be",
)
INVENTED = Source(
    "art",
    "mit",
    "a play in an invented language, written from a grammar",
    "Ne daz rants iv Insk darku",
)
UNKNOWN = Source(
    "und",
    "other",
    "state its language, license and origin here before you publish",
    "a text of your own",
)
SOURCES = {TINY_SHAKESPEARE: SHAKESPEARE, PLAY: INVENTED}  # by the name of the corpus
TOKENS = {"characters": "A token is a character", "bytes": "A token is a byte of UTF-8"}
SENTENCE_TRANSFORMERS = "sentence-transformers"
USE = {  # by library
    "transformers": """\
from transformers import pipeline

model = pipeline("{pipeline}", "PATH OF THIS FOLDER"{option})
model("{example}")""",
    SENTENCE_TRANSFORMERS: """\
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("PATH OF THIS FOLDER"{option})
model.encode(["{example}"])""",
}
MARKDOWN = re.compile(r"([\\`*_\[\]<>&|#~$])")


class Facts(NamedTuple):
    """What differs between the cards of runs and classifiers, in Markdown."""

    pipeline: str
    source: Source
    title: str
    texts: str
    example: str
    own_code: str  # empty if transformers needs none
    results: str
    training: str


def card(trained: Trained, library: str = "transformers") -> str:
    """The card of a model or a classifier for a library, in Markdown, with the sections that users
    of Hugging Face's hub expect."""
    if isinstance(trained, SavedClassifier):
        model = trained.classifier
        facts = facts_of_classifier(trained)
    else:
        model = trained.model
        facts = facts_of_run(trained)
    if library == SENTENCE_TRANSFORMERS:
        example = facts.source.example
        facts = facts._replace(pipeline="sentence-similarity", example=example)
    n_tokens = trained.vocabulary.n_ordinary
    tokens = TOKENS.get(trained.vocabulary.tokens, f"It has {n_tokens:,} tokens")
    option = ""
    reason = ""
    if facts.own_code:
        option = ", trust_remote_code=True"
        reason = f"""
`trust_remote_code=True` runs `modeling_folio.py`, which adds {facts.own_code} to ModernBERT.
"""

    use = USE[library].format(
        pipeline=facts.pipeline, option=option, example=facts.example
    )
    return f"""\
---
library_name: {library}
pipeline_tag: {facts.pipeline}
language: {facts.source.language}
license: {facts.source.license}
---
# {facts.title}

Made with Folio. The model has {n_weights(model):,} weights. {tokens}. Texts have at most
{trained.longest} tokens; longer ones must be cut.

## Use

```python
{use}
```
{reason}
## Data

{facts.texts}

## Results

{facts.results}

## Limits

The model knows only texts like these. It fails on other languages, spellings and subjects, repeats what its texts say
of people and groups, and reads tokens that they lack as unknown. Its figures hold for text from the same source.

## Training

{facts.training}
"""


def n_weights(model: nn.Module) -> int:
    return sum(weights.numel() for weights in model.parameters())


def facts_of_run(trained: Trained) -> Facts:
    run = trained.run
    source, texts = source_of(run)
    # a model of the user's may have none
    encoder = getattr(trained.model, "encoder", None)
    return Facts(
        "fill-mask",
        source,
        f"{plain(run.about()['name'])}: a masked language model",
        texts,
        f"{source.example[:11]}[MASK]{source.example[12:]}",
        "" if getattr(encoder, "ngrams", None) is None else "n-gram embeddings",
        losses_of(run),
        f"Run {code(run.path.name)}: {code(command(run))}",
    )


def facts_of_classifier(saved: SavedClassifier) -> Facts:
    source, texts = source_of(saved.run)
    # a file of the user and its digest, or the name of a task
    file, _, task = saved.task.rpartition(" ")
    name = file or task
    if file:
        source = UNKNOWN
        texts = f"{texts}\nFine-tuned on labelled texts, {code(name)}: {UNKNOWN.description}."

    size = saved.results["labelled"]
    learned = f"python finetune.py RUN --task {shlex.quote(name)} --labels {size} --save FOLDER"
    if saved.results.get("measure") == MEAN_RECALL:
        learned += " --balanced"

    return Facts(
        f"{'token' if saved.kind == CHARACTER else 'text'}-classification",
        source,
        f"{plain(name)}: a classifier",
        texts,
        source.example,
        "Folio's classifier",
        results_of(saved),
        f"{code(command(saved.run))}, then {code(learned)}",
    )


def source_of(run: RunFolder) -> tuple[Source, str]:
    """The text that a run was trained on, and a sentence about it."""
    corpus = run.corpus()
    source = SOURCES.get(corpus["name"], UNKNOWN)
    name = code(Path(corpus["name"]).name)
    sha256 = code(corpus["sha256"])

    description = source.description
    if corpus.get("contents"):
        description = f"{corpus['contents']}; {description}"
    return source, f"Trained on {name}: {description}. Its SHA-256 is {sha256}."


def best_row(run: RunFolder) -> dict[str, Any] | None:
    """The row of the best weights; None if no row has a loss."""
    rows = run.metrics()
    has_bound = rows and is_number(rows[-1].get("loss.bound"))
    decisive = "loss.bound" if has_bound else "loss.valid"
    measured = [row for row in rows if is_number(row.get(decisive))]
    return min(measured, key=lambda row: row[decisive], default=None)


def losses_of(run: RunFolder) -> str:
    """The validation loss of a run and its protocol, in Markdown."""
    if run.suffix:
        kept = run.suffix.removeprefix("@")
        return f"Unknown: these weights were kept at {kept} of the training, not evaluated."
    best = best_row(run)
    if best is None:
        return "Unknown: the run has lost its metrics.jsonl."
    loss = with_error(f"{best['loss.valid']:.4f}", best.get("loss.valid_stderr"))
    accuracy = best["accuracy.valid"]
    correct = "unknown" if accuracy is None else f"{accuracy:.1%}"

    held_out = "the last 10% of the text"
    if run.corpus().get("contents"):
        held_out = "the validation documents"
    if "validation_windows" in best:
        held_out = f"{best['validation_windows']} windows of {held_out}"

    return f"""\
| `loss.valid` | correct | tokens seen | seconds of training |
|---|---|---|---|
| {loss} nats | {correct} | {best["chars"]:,} | {best["seconds"]:.0f} |

`loss.valid` is the mean cross-entropy of masked tokens in {held_out}, which training never
sees, with its standard error over windows. 15% of the tokens, 38 of 256, are replaced by `[MASK]`."""


def results_of(saved: SavedClassifier) -> str:
    """The scores of a classifier and of other methods, and their protocol, in Markdown."""
    results = saved.results
    rows = []
    for name, score in results["scores"].items():
        mean = with_error(f"{score['mean']:.3f}", score["margin"])
        rows.append(f"| {plain(name)} | {mean} |")

    if "ceiling" in results:
        rows.append(f"| best possible | {results['ceiling']:.3f} |")
    table = "\n".join(rows)
    labels = ", ".join(map(plain, saved.labels))
    measure = results.get("measure", ACCURACY)
    protocol = "one draw of labels"
    if results["draws"] > 1:
        protocol = (
            f"the mean of {results['draws']} draws of labels, with its 95% interval over draws"
            " and test texts"
        )

    return f"""\
The labels are {labels}.

{measure.capitalize()} on {results["test"]:,} test texts that no method has learned from, with
{results["labelled"]:,} labelled texts: {protocol}.

| learned by | {measure} |
|---|---|
{table}

This model is the fine-tuned one of the first draw. Its own {measure} is {results["first draw"]:.3f}."""


def command(run: RunFolder) -> str:
    """The command that started the run, without the folders of the files that it names."""
    return shlex.join(map(without_folders, shlex.split(run.command())))


def without_folders(word: str) -> str:
    return re.sub(r"[^=\[,]*/(?=.)", "", word)


def plain(text: str) -> str:
    """A user's text in Markdown, with escapes for characters that have a meaning there."""
    return MARKDOWN.sub(r"\\\1", in_one_line(text))


def code(text: str) -> str:
    """A user's text as code in Markdown."""
    quoted = in_one_line(text).replace("`", "'")
    return f"`{quoted}`"
