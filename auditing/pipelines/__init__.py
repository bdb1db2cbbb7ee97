"""The audit of a pipeline. `calls` and `target_batch` also run in the target's process, without
Folio's packages."""
