"""The examples of the user guide run as printed, and its sources can be read side by side."""

import doctest
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
WRITTEN_BY_SPHINX = {"sg_execution_times"}
SOURCES = [
    page
    for page in sorted([*DOCS.parent.glob("*.rst"), *DOCS.glob("*.rst"), *DOCS.glob("user_guide/*.rst")])
    if page.stem not in WRITTEN_BY_SPHINX
]
PAGES = [page for page in SOURCES if page.parent != DOCS.parent and ">>>" in page.read_text(encoding="utf-8")]
MAX_COLUMNS = 120


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page(page):
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.testfile(str(page), module_relative=False, optionflags=options, encoding="utf-8")
    assert result.attempted
    assert not result.failed


@pytest.mark.parametrize("page", SOURCES, ids=lambda page: page.stem)
def test_lines_are_short(page):
    lines = page.read_text(encoding="utf-8").splitlines()
    assert not [f"line {i}" for i, line in enumerate(lines, 1) if len(line) > MAX_COLUMNS]
