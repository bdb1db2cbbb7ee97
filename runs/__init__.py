"""What is on disk and how it is viewed: run folders, statistics, plots, delivery to a dashboard.

Nothing here imports torch or another package of Folio.
"""
