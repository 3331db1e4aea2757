"""The examples of the user guide run as printed."""

import doctest
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = [
    page
    for page in sorted([*DOCS.glob("*.rst"), *DOCS.glob("user_guide/*.rst")])
    if ">>>" in page.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page(page):
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.testfile(str(page), module_relative=False, optionflags=options, encoding="utf-8")
    assert result.attempted
    assert not result.failed
