"""Plans for long runs: a ladder of small runs, and the law that is fitted to them."""
