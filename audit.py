"""Names the command that replaces this one."""

import sys

if __name__ == "__main__":
    print(
        "audit.py: use `python -m auditing`, or `pip install ./auditing` and `folio-audit`",
        file=sys.stderr,
    )
    sys.exit(2)
