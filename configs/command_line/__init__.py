"""The command lines of all programs: words in, checked values out, errors in one line."""
