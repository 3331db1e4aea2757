"""Scripts of the task pages and of the tiles on the first page of the documentation: they run, and are short."""

import re
import runpy
from pathlib import Path

import pytest

TASKS = sorted((Path(__file__).resolve().parents[1] / "examples" / "tasks").glob("*.py"))
TILES = sorted((Path(__file__).resolve().parents[1] / "docs" / "tiles").glob("*.py"))
NEEDS = {"long_table": "pandas", "photo_strokes": "skimage", "save_and_load": "skops"}


def test_there_are_twelve():
    assert len(TASKS) == 12


@pytest.mark.parametrize("path", TASKS, ids=lambda path: path.stem)
def test_script_is_short(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 25
    assert max(map(len, text.splitlines())) <= 88


@pytest.mark.parametrize("path", TASKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_script_runs(path, capsys):
    if path.stem in NEEDS:
        pytest.importorskip(NEEDS[path.stem], reason=f"the task shows {NEEDS[path.stem]}")
    runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed
    assert not re.search(r"\bnan\b", printed)


@pytest.mark.parametrize("path", TILES, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_tile_is_short_and_runs(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if line.strip()]) <= 15
    assert max(map(len, lines)) <= 62  # the width of a tile
    plt = pytest.importorskip("matplotlib.pyplot", reason="a tile draws what it made")
    plt.switch_backend("Agg")
    runpy.run_path(str(path))
    plt.close("all")
