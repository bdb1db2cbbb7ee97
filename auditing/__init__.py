"""Audits of masked-language-model pipelines, ours or someone else's: `audit.py` is the entry point.

The package imports the standard library, NumPy, PyTorch and psutil only, because it also runs in the process of the
target, whose project may have modules named `data` or `model`. Only parts of `auditing.pipelines` use Folio's packages.
"""
