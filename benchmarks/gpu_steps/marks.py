"""The figures that Folio should reach on an H100 or H200."""

from typing import NamedTuple


class Mark(NamedTuple):
    """A bound of a figure, from below or from above."""

    bound: float
    is_lower: bool = True

    def is_met(self, figure: float) -> bool:
        return figure >= self.bound if self.is_lower else figure <= self.bound

    def __str__(self) -> str:
        return f"at {'least' if self.is_lower else 'most'} {self.bound:g}"


def at_most(bound: float) -> Mark:
    return Mark(bound, is_lower=False)


MARKS = {
    "gpu-base, AdamW: share of the fastest product": Mark(0.45),
    "gpu-base, Muon: share of the fastest product": Mark(0.4),
    "gpu-base, AdamW: speed relative to ModernBERT": Mark(1.4),
    "gpu-base, AdamW: speed relative to BERT": Mark(1.4),
    "gpu-base: GB of memory at the peak": at_most(24.0),
    "annotated shape, Muon: speed relative to ModernBERT": Mark(1.0),
    "annotated shape, AdamW: speed relative to ModernBERT": Mark(1.3),
    "packed documents: speed relative to full windows": Mark(0.9),
    "packed documents: difference from each one alone": at_most(1e-2),
    "gpu, seed 0: loss after 90 s": at_most(0.6),
    "gpu, seed 0: loss after 180 s": at_most(0.58),
    "gpu, seed 1: loss after 90 s": at_most(0.6),
    "gpu, seed 1: loss after 180 s": at_most(0.58),
}
