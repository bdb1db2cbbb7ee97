"""The report of a pipeline's audit, and the picture of its loss between the losses that are known exactly."""

import io

from auditing.finding import Verdict, worst
from auditing.pipelines.audit import PipelineAudit
from auditing.report import Report

CONCLUSIONS = {
    Verdict.OK: "Nothing is wrong.",
    Verdict.DIFFERS: "Nothing is certainly wrong; see what differs.",
    Verdict.BROKEN: "Something is broken.",
}
CAPTION = (
    "The loss of the pipeline at [MASK] while it trains. The lines are exact, on the same positions: guessing by"
    " frequency, and the lowest possible loss."
)


def report(audit: PipelineAudit) -> Report:
    """The findings with a title and a summary."""
    title = (
        "Pipeline {0}: {model}, {n_weights:,} weights, {optimizer}; trained on the play for {training_seconds:.0f} s,"
        " {steps:,} steps"
    ).format(audit.target, **audit.facts)
    exact = ", ".join(f"{name} {value:.3f}" for name, value in audit.references.items())
    summary = f"Loss at [MASK], in nats per character: {audit.curve[-1][2]:.3f} after training; exact: {exact}."
    return Report(title, audit.findings, f"{CONCLUSIONS[worst(audit.findings)]} {summary}")


def pictures(audit: PipelineAudit) -> list[tuple[str, bytes]]:
    """Captions and PNG files: the loss curve with lines for unigram and floor."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    seconds, _, losses = zip(*audit.curve, strict=True)
    axes.plot(seconds, losses, marker="o", markersize=3, color="C0", label="the pipeline")
    for (name, value), style in zip(audit.references.items(), (":", "-"), strict=True):
        axes.axhline(value, color="black", linewidth=1, linestyle=style, label=f"{name} {value:.3f}")
    axes.set(xlabel="seconds of training", ylabel="nats per [MASK]", ylim=(0, None))
    axes.legend()
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=120)
    return [(CAPTION, content.getvalue())]
