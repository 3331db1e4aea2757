"""User guide: examples run as printed, and lines and pages are not too long."""

import ast
import doctest
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
FOLDERS = ("user_guide", "how_to", "tutorial", "migration", "results")
WRITTEN_BY_SPHINX = {"sg_execution_times"}
SOURCES = [
    page
    for folder in (DOCS.parent, DOCS, *(DOCS / name for name in FOLDERS))
    for page in sorted(folder.glob("*.rst"))
    if page.stem not in WRITTEN_BY_SPHINX
]
PAGES = [page for page in SOURCES if page.parent != DOCS.parent and ">>>" in page.read_text(encoding="utf-8")]
MAX_COLUMNS = 120
CODE_COLUMNS = 88  # width of a code box in a browser on a desktop
LESSONS = [page for page in SOURCES if page.parent.name in {"user_guide", "tutorial"} and page.stem != "index"]
MAX_WORDS = 1500
PICTURE = re.compile(r"^ *\.\. (?:figure|image|plot):: (\S+)", re.MULTILINE)


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_fits_its_box(page):
    code = [line.strip() for line in page.read_text(encoding="utf-8").splitlines()]
    assert not [line for line in code if line.startswith((">>>", "...")) and len(line) > CODE_COLUMNS]


@pytest.mark.parametrize("page", LESSONS, ids=lambda page: page.stem)
def test_a_page_of_the_guide_is_short(page):
    assert len(page.read_text(encoding="utf-8").split()) <= MAX_WORDS


@pytest.mark.parametrize("path", sorted(DOCS.parent.glob("examples/**/plot_*.py")), ids=lambda path: path.stem)
def test_examples_print_and_draw_their_results(path):
    source = path.read_text(encoding="utf-8")
    called = {ast.unparse(node.func) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)}
    assert {"print", "plt.show"} <= called
    # Results change with the package, so the text leaves them to the output.
    text = [ast.get_docstring(ast.parse(source)), *(line for line in source.splitlines() if line.startswith("#"))]
    assert not re.findall(r"\d\.\d+ ?%?|\d\d ?% (?:of|wrong|right)", "\n".join(text))


def picture_paths(page):
    """Yield the files of a page's figures; plots are relative to docs/, as in `plot_basedir`."""
    for name in PICTURE.findall(page.read_text(encoding="utf-8")):
        inside = name.startswith(("pictures/", "tiles/", "/"))
        yield DOCS / name.lstrip("/") if inside else page.parent / name


def test_pages_of_the_guide_have_pictures():
    without = [page.stem for page in LESSONS if not list(picture_paths(page))]
    assert not without, f"guide pages without picture: {len(without)}"
    assert not [path for page in SOURCES for path in picture_paths(page) if not path.exists()]


def test_every_picture_is_on_a_page():
    shown = {path.resolve() for page in SOURCES for path in picture_paths(page)}
    assert {path.resolve() for folder in ("pictures", "tiles") for path in (DOCS / folder).glob("*.py")} <= shown
