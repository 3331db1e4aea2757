"""The examples of the user guide run as printed."""

import doctest
from pathlib import Path

import pytest

GUIDE = Path(__file__).resolve().parents[1] / "docs" / "user_guide"
PAGES = [page for page in sorted(GUIDE.glob("*.rst")) if ">>>" in page.read_text(encoding="utf-8")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page(page):
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.testfile(str(page), module_relative=False, optionflags=options, encoding="utf-8")
    assert result.attempted
    assert not result.failed
