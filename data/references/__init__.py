"""Reference losses: what guessing, counting and the true distribution reach."""
