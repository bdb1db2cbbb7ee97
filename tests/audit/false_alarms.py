"""Audits the correct maskers of the museum with many seeds and counts the false alarms.

With 20 seeds, the default, these are 500 audits, and take more than an hour on one core.
"""

import argparse

from configs.scripts import number
from tests.audit.museum.correct import CORRECT

SEEDS = 20


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.audit.false_alarms", description=__doc__)
    parser.add_argument("seeds", nargs="?", type=number(int, 1), default=SEEDS, metavar="N", help="audits per masker")
    n_seeds = parser.parse_args().seeds
    n_alarms = 0
    for correct in CORRECT:
        alarms = {seed: lines for seed in range(1, n_seeds + 1) if (lines := correct.alarms(correct.audit(seed)))}
        n_alarms += len(alarms)
        print(f"{correct.name}: {len(alarms)} of {n_seeds} audits with a false alarm", flush=True)
        for seed, findings in alarms.items():
            for finding in findings:
                print(f"  seed {seed}: {finding.line()}", flush=True)
    print(f"{n_alarms} of {n_seeds * len(CORRECT)} audits with a false alarm")


if __name__ == "__main__":
    main()
