"""Measurements of Folio against its peers and against itself. Each is a command: python -m
benchmarks.NAME"""
