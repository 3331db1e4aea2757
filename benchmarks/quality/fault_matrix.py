"""Count passed and executed tests of faults during fits, by estimator and fault.

    python benchmarks/quality/fault_matrix.py [--only ESTIMATOR]

Runs ``tests/test_faults.py``. A test passes if the user gets the error or the fit continues, and if the fitted state is
unchanged. "-" marks a fault that cannot occur for the estimator.
"""

import argparse
from collections import defaultdict
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2] / "tests"
FAULTS = {
    "test_errors_of_user_code_pass_through": "user code",
    "test_errors_of_callbacks_pass_through": "callback",
    "test_interrupts_at_random_moments": "Ctrl-C",
    "test_a_fit_without_memory_raises_and_changes_nothing": "memory",
    "test_no_temporary_folder_is_needed": "no folder",
    "test_fits_write_no_file": "full disk",
    "test_a_forked_child_fits_after_threads_ran": "fork",
    "test_spawned_children_fit_and_predict_the_same": "spawn",
}


class Matrix:
    """Outcomes of tests as pytest reports them, by estimator and column."""

    # column: function that maps a test and its parameters to a column or None; columns: all columns in order

    def __init__(self, column, columns):
        self.column, self.columns = column, columns
        self.outcomes = defaultdict(list)

    def pytest_runtest_logreport(self, report):
        if report.when != "call" and report.passed:
            return
        name, _, case = report.nodeid.split("::")[-1].rstrip("]").partition("[")
        column = self.column(name, case)
        if column and not report.skipped:
            words = [word for word in case.split("-") if word[:1].isupper()]
            self.outcomes[words[0] if words else "all", column].append(report.passed)

    def rows(self):
        """Yield a line for each estimator; a test of all estimators counts for each of them."""
        names = sorted({name for name, _ in self.outcomes} - {"all"})
        for name in names:
            cells = [self.outcomes.get((name, column)) or self.outcomes.get(("all", column)) for column in self.columns]
            yield name, [f"{sum(cell)}/{len(cell)}" if cell else "-" for cell in cells]


def run_matrix(description, test_file, column, columns):
    """Run a file of tests and print its matrix; ``column`` names the column of a test and its parameters."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--only", help="name of one estimator")
    options = parser.parse_args()
    matrix = Matrix(column, columns)
    only = ["-k", options.only] if options.only else []
    code = pytest.main(["-q", "-p", "no:cacheprovider", str(TESTS / test_file), *only], plugins=[matrix])
    print(f"{'':30}" + "".join(f"{name:>12}" for name in columns))
    for name, cells in matrix.rows():
        print(f"{name:30}" + "".join(f"{cell:>12}" for cell in cells))
    raise SystemExit(int(code))


if __name__ == "__main__":
    run_matrix(__doc__, "test_faults.py", lambda test, case: FAULTS.get(test), list(FAULTS.values()))
