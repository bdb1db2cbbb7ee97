"""Text from a masked language model, and how good it is: sampling, likelihood, comparison with the truth."""
