"""Audits every public masker that is installed and prints one table, in Markdown.

pip install -r requirements-bench.txt
pip install --no-deps -r requirements-audit.txt
python -m benchmarks.public_maskers
"""

from argparse import Namespace, RawDescriptionHelpFormatter

from configs.one_line import OneLineParser, run_main
from configs.scripts import run_script


def audit(options: Namespace) -> None:
    from benchmarks.public_maskers.table import print_table  # needs transformers

    print_table(options.part)


if __name__ == "__main__":
    parser = OneLineParser("public_maskers", description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", default="", metavar="PART", help="only the maskers with PART in their name")
    run_main(lambda words: run_script(parser, words, audit, "requirements-bench.txt"))
