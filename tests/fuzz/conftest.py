"""Counts of the cases that the fuzzers tried, at the end of the report."""

from fuzzing import COUNT, SECONDS, SEED, TRIED


def pytest_terminal_summary(terminalreporter):
    if TRIED:
        terminalreporter.section("fuzzing")
        for name, count in sorted(TRIED.items()):
            terminalreporter.write_line(f"{count:8} {name}")
        budget = f"{SECONDS:g} s each" if SECONDS else f"{COUNT} seeds each"
        terminalreporter.write_line(f"from seed {SEED} on, {budget}")
