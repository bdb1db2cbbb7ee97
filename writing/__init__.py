"""A masked language model as a writer: sampling and likelihood, and comparison with the exact
posterior of the play.

Writing: sampler, frames, terminal, animation. How well: measures. Against the truth of the play:
truth (the exact posterior as a model), judge, phenomena, beliefs, consistency.
"""
