"""The texts that a run on the play writes, judged by the play's grammar, next to those of an ideal sampler.

python -m benchmarks.samplers [RUN] [--texts 32]        RUN: a folder, a uuid or its first characters, or `last`

The ideal sampler draws from the exact posterior, as many characters per step as the run. The characters of a step do
not see each other: its only error is this factorization error. (After an impossible character, it draws as if that
were a misprint.) Further errors of the run are due to what it has not learned. With one character per step, the ideal
sampler writes the grammar's own texts.

A text is cut before each character that the grammar cannot write after those since the last cut. Cuts per 1,000
characters are finite for every text, in contrast to its probability. Nats per character are given the characters since
the last cut, minus those of the grammar's own texts at the same distance from their beginning, plus the entropy rate.
The grammar's own texts have the entropy rate. Texts with fewer nats are not better: they have too little variety.
"""

import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Generator, nn

from benchmarks.command import RUN, Table, run_benchmark, save_results
from configs.keys import ConfigError
from configs.scripts import number
from configs.seeds import derived_seed
from runs.figures import save_figure
from runs.statistics import with_error
from trained.load import load_trained
from writing.judge import Judge
from writing.orders import ORDERS
from writing.sampler import Sampler

LENGTH = 128  # of a text, in characters
STEPS = (4, 8, 16, 32, 64)
TEMPERATURES = (0.5, 0.8, 1.2)
TEMPERED_STEPS = 16
TEMPERED_ORDERS = ("random", "confidence")
WRITERS = ("run", "ideal")
MEASURES = {  # of the judge -> the heading, the factor and the format
    "impossible": ("impossible texts, %", 100, ".0f"),
    "cuts": ("cuts per 1,000 characters", 1, ".1f"),
    "nats": ("nats per character", 1, ".3f"),
}


class Setting(NamedTuple):
    """How texts are written: by the run or the ideal sampler, in an order, in so many steps, at a temperature."""

    writer: str
    order: str
    steps: int
    temperature: float


def main(options: Namespace, path: Path) -> None:
    trained = load_trained(options.run)
    automaton = trained.data().loaded.automaton
    if automaton is None or not trained.vocabulary.is_characters:
        raise ConfigError(f"{trained.run.path} was not trained on the characters of the play: use data.corpus=play")
    length = min(LENGTH, trained.longest)
    judge = Judge(automaton, trained.vocabulary, length)
    models: dict[str, nn.Module] = {"run": trained.model, "ideal": judge.posterior}
    blank, n_ordinary = trained.vocabulary.mask_token, trained.vocabulary.n_ordinary
    rows = []
    for setting in settings(length):
        began = time.perf_counter()
        sampler = Sampler(models[setting.writer], blank, n_ordinary, setting.order, setting.temperature)
        blanks = torch.full((options.texts, length), blank)
        generators = [Generator().manual_seed(derived_seed(i, "samplers")) for i in range(options.texts)]
        *_, texts = sampler.write(blanks, setting.steps, generators)
        row = setting._asdict() | judge.measures(texts)
        rows.append(row | {"example": trained.vocabulary.decode(texts[0])})
        seconds = time.perf_counter() - began
        print(*setting, f"{row['cuts']:.1f} cuts per 1,000 characters ({seconds:.0f} s)", flush=True)
    facts = {"run": trained.run.path.name, "comment": trained.run.about()["comment"], "texts": options.texts}
    facts |= {"length": length, "entropy_rate": judge.entropy_rate}
    save_results(path, table(rows), **facts, settings=rows)
    save_figure(path.with_suffix(".png"), figure(rows, facts))


def settings(length: int) -> Iterator[Setting]:
    """All orders and numbers of steps at temperature 1, then other temperatures; the fast ones first."""
    for writer in WRITERS:
        numbers = [steps for steps in STEPS if steps < length]
        if writer == "run":
            numbers.append(length)  # the ideal sampler's texts would be the grammar's own
        yield from (Setting(writer, order, steps, 1.0) for order in ORDERS for steps in numbers)
        steps = min(TEMPERED_STEPS, length)
        yield from (Setting(writer, order, steps, t) for order in TEMPERED_ORDERS for t in TEMPERATURES)


def table(rows: list[dict[str, Any]]) -> Table:
    """One row per order, number of steps and temperature: the measures of the run and of the ideal sampler."""
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        named = {"order": row["order"], "steps": f"{row['steps']}", "temperature": f"{row['temperature']:g}"}
        cells = found.setdefault(tuple(named.values()), named)
        for measure, (heading, factor, digits) in MEASURES.items():
            value, stderr = factor * row[measure], factor * row[f"{measure}_stderr"]
            cells[f"{heading}: {row['writer']}"] = with_error(f"{value:{digits}}", stderr)
    return list(found.values())


def figure(rows: list[dict[str, Any]], facts: dict[str, Any]) -> Figure:
    """Three measures over the number of steps, one curve per order; those of the ideal sampler are dashed."""
    drawn = Figure(figsize=(13, 5), layout="constrained")
    at_the_end = {"impossible": 0.0, "cuts": 0.0, "nats": facts["entropy_rate"]}  # of the ideal sampler
    panels = drawn.subplots(1, len(at_the_end))
    for axes, (measure, end) in zip(panels, at_the_end.items(), strict=True):
        title, factor, _ = MEASURES[measure]
        for order in ORDERS:
            for writer in WRITERS:
                curve = [row for row in rows if (row["writer"], row["order"], row["temperature"]) == (writer, order, 1)]
                names = (measure, f"{measure}_stderr")
                points = [(row["steps"], *(factor * row[name] for name in names)) for row in curve]
                points += [(facts["length"], end, 0.0)] if writer == "ideal" else []
                style = {"linestyle": "-" if writer == "run" else "--", "color": f"C{ORDERS.index(order)}"}
                steps, values, errors = zip(*points, strict=True)
                axes.errorbar(steps, values, errors, marker=".", label=f"{writer}, {order}", **style)
        axes.axhline(end, color="grey", linestyle=":")
        axes.set_xscale("log", base=2)
        axes.set_xticks([*STEPS, facts["length"]], [str(steps) for steps in (*STEPS, facts["length"])])
        axes.set(title=title, xlabel=f"steps for {facts['length']} characters")
    drawn.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(ORDERS), fontsize="small"
    )
    drawn.suptitle("Texts of a run and of the ideal sampler; dotted: the grammar's own texts", fontsize="medium")
    return drawn


if __name__ == "__main__":
    texts = {"type": number(int, 2), "default": 32, "metavar": "N", "help": "texts per setting (default: 32)"}
    run_benchmark(main, {"run": RUN, "texts": texts}, unnamed=["run"])
