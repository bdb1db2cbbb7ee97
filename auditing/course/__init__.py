"""Learning by mistakes: a learner repairs buggy maskers, and the audit judges the repairs."""
