"""The built-in play, a text whose distribution is known, and the Bayes-optimal loss on it."""
