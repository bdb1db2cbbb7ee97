"""The audit of a whole pipeline: builds its batches twice, trains it on the play, and knows the exact losses.

`calls`, `target_batch`, `stand_in` and `play_tokens` also run in the target's process. The others run in Folio's own,
and may use Folio's packages.
"""
