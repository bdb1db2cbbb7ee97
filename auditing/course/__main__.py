"""`python -m auditing.course` is `folio-audit course`."""

import sys

from auditing.__main__ import run

if __name__ == "__main__":
    run(["course", *sys.argv[1:]])
