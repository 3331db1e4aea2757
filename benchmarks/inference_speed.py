"""Speed of inference next to its peers, in one run, whole-process memory included.

    python benchmarks/inference_speed.py

Prints one table. Times are of the processor on one thread, the least of several repetitions, unless the remark
names threads; peers that are not installed are skipped with a word.
"""

import importlib.util


def rows():
    """Rows of (job, this package, peer, remark) of every part that can be run."""
    import _bp_speed
    import _trw_speed

    found = [*_bp_speed.run(), *_trw_speed.run()]
    if importlib.util.find_spec("_cut_speed"):
        import _cut_speed

        found += _cut_speed.run()
    return found


def main():
    table = [("", "sklearn_crf", "peer", ""), *rows()]
    cells = [["-" if cell is None else str(cell) for cell in row] for row in table]
    widths = [max(len(row[k]) for row in cells) for k in range(len(cells[0]))]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main()
