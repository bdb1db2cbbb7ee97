"""Audits the correct maskers of the museum with many seeds and counts the false alarms.

The argument is the number of seeds. With 20, the default, these are 500 audits, and take more than
an hour on one core.
"""

import sys

from auditing.tests.museum.correct import CORRECT

if __name__ == "__main__":
    n_seeds = int(sys.argv[1]) if sys.argv[1:] else 20
    n_alarms = 0
    for correct in CORRECT:
        alarms = {
            seed: lines
            for seed in range(1, n_seeds + 1)
            if (lines := correct.alarms(correct.audit(seed)))
        }
        n_alarms += len(alarms)
        print(
            f"{correct.name}: {len(alarms)} of {n_seeds} audits with a false alarm",
            flush=True,
        )
        for seed, findings in alarms.items():
            for finding in findings:
                print(f"  seed {seed}: {finding.line()}", flush=True)
    print(f"{n_alarms} of {n_seeds * len(CORRECT)} audits with a false alarm")
