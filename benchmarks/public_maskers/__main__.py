"""Audits every public masker that is installed and prints one table, in Markdown.

pip install --no-deps -r requirements-audit.txt
python -m benchmarks.public_maskers [part of a name]
"""

import sys

from benchmarks.public_maskers.table import print_table

if __name__ == "__main__":
    print_table(sys.argv[1] if len(sys.argv) > 1 else "")
