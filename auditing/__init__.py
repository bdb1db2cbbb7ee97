"""Audits of masked-language-model pipelines, in any project: `folio-audit` is the command.

The package imports the standard library, NumPy and PyTorch only, because it also runs in the
process of the target, whose project may have modules named `data` or `model`.
"""
