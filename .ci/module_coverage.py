"""Fail where tests reach too few lines of a module: reads the data that ``make coverage`` has left.

python .ci/module_coverage.py [--least 90] [PREFIX ...]

PREFIX limits the check to some files, such as ``sklearn_crf/encoding``.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from coverage import Coverage


def shares_of_modules():
    """Share of the lines that tests reach and number of the others, by file."""
    coverage = Coverage()
    coverage.load()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        coverage.json_report(outfile=str(report))
        files = json.loads(report.read_text(encoding="utf-8"))["files"]
    return {name: (of["summary"]["percent_covered"], of["summary"]["missing_lines"]) for name, of in files.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--least", type=float, default=90.0, help="per cent of the lines of every module")
    parser.add_argument("prefixes", nargs="*", default=["sklearn_crf"])
    options = parser.parse_args()
    found = {name: of for name, of in shares_of_modules().items() if name.startswith(tuple(options.prefixes))}
    if not found:
        sys.exit(f"No module under {' '.join(options.prefixes)} was measured.")
    poor = {name: of for name, of in found.items() if of[0] < options.least}
    for name, (share, n_missing) in sorted(poor.items(), key=lambda item: item[1]):
        print(f"{share:5.1f} %  {n_missing:4d} lines not reached  {name}")
    print(f"{len(found)} modules, {len(poor)} of them under {options.least:g} %")
    sys.exit(bool(poor))


if __name__ == "__main__":
    main()
