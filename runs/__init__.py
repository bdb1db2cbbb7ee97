"""Run folders, statistics, plots, and delivery to a dashboard.

Nothing here imports torch or another package of Folio.
"""
