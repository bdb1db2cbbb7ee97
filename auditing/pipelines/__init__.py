"""The audit of a whole pipeline: trains it on the play, and compares its losses with exact ones.

`calls`, `batch`, `stand_in` and `tokens` also run in the target's process. The others run in Folio's own, and may use
Folio's packages.
"""
