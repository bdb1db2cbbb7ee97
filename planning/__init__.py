"""Plans a run before it is paid for: a ladder of small runs, and a law that is fitted to them."""
