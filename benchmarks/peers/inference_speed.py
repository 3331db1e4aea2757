"""Compare the speed of inference with other packages, and the memory of whole processes.

    python benchmarks/peers/inference_speed.py

Prints each row when it is measured: the job, the time of this package, the time of the other package, and a remark.
Times are processor times on one thread, the shortest of several repetitions, unless the remark names threads. Packages
that are not installed are skipped with a remark.
"""

import _path  # noqa: F401  finds the support package
from support import bp_speed, cut_speed, trw_speed

WIDTHS = (58, 12, 12)


def show(row):
    """Print one row of (job, this package, peer, remark)."""
    cells = ["-" if cell is None else str(cell) for cell in row]
    padded = [cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=False)]
    print("  ".join([*padded, cells[-1]]).rstrip(), flush=True)


def main():
    show(("", "sklearn_crf", "peer", ""))
    for part in (bp_speed, trw_speed, cut_speed):
        for row in part.run():
            show(row)


if __name__ == "__main__":
    main()
