"""README: the example runs, figures exist, badges tell the truth, and files named for contributors exist."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.rst"


def test_badges_say_what_the_metadata_say():
    drawn = runpy.run_path(str(ROOT / ".ci" / "badges.py"))["badges"]()
    files = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "_static" / "badges").iterdir()}
    assert files == drawn, "run python .ci/badges.py"
    shown = re.findall(r"image:: docs/_static/badges/(\S+)", README.read_text(encoding="utf-8"))
    assert sorted(shown) == sorted(drawn)


def test_pictures_of_the_readme_are_there():
    shown = re.findall(r"image:: (\S+)", README.read_text(encoding="utf-8"))
    assert shown
    assert not [path for path in shown if not (ROOT / path).exists()]


def test_readme_example(capsys):
    text = README.read_text(encoding="utf-8")
    block = re.search(r"\.\. code-block:: python\n\n((?:    .*\n|\n)+)", text).group(1)
    code = "\n".join(line[4:] for line in block.splitlines())
    namespace = {}
    exec(compile(code, "README.rst", "exec"), namespace)
    printed = re.findall(r"[\d.]+%", capsys.readouterr().out)
    assert printed == re.findall(r"# ([\d.]+%)", code)
    alone, field = (float(figure[:-1]) for figure in printed)
    assert field > alone + 2  # of 4500 steps: three standard errors


@pytest.mark.parametrize("page", ["CONTRIBUTING.rst", "docs/architecture.rst"])
def test_files_named_for_contributors_exist(page):
    named = re.findall(r"``([\w./]+\.(?:py|pyx|pxd|hpp|rst))``", (ROOT / page).read_text(encoding="utf-8"))
    named = [path for path in named if "NAME" not in path]
    assert len(named) > 5
    for path in named:
        places = [ROOT / path, ROOT / "sklearn_crf" / path]
        assert any(place.exists() for place in places) or ("/" not in path and any(ROOT.glob(f"sklearn_crf/**/{path}")))
