"""The built-in play: a text whose distribution is known, and the lowest loss that any model can reach on it."""
