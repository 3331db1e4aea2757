"""Draw the badges of README.rst from pyproject.toml into docs/_static/badges.

python .ci/badges.py
"""

import re
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "_static" / "badges"
CHARACTER, PADDING, HEIGHT = 6.6, 7, 20  # pixels


def badges():
    """Text of each file by its name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    systems = {"POSIX :: Linux": "Linux", "MacOS": "macOS", "Microsoft :: Windows": "Windows"}
    built = [name for key, name in systems.items() if f"Operating System :: {key}" in project["classifiers"]]
    required = dict(re.match(r"([\w-]+)>=(.*)", line).groups() for line in project["dependencies"])
    return {
        "python.svg": draw("python", " | ".join(versions), "#2b5b84"),
        "scikit-learn.svg": draw("scikit-learn", f"{required['scikit-learn']} or newer", "#a84b00"),
        "platforms.svg": draw("platforms", " | ".join(built), "#44546a"),
        "license.svg": draw("license", project["license"], "#3c6e3c"),
    }


def draw(name, value, colour):
    left, right = (round(len(text) * CHARACTER) + 2 * PADDING for text in (name, value))
    texts = "".join(
        f'<text x="{x}" y="14" text-anchor="middle" textLength="{width - 2 * PADDING}">{escape(text)}</text>'
        for x, width, text in ((left / 2, left, name), (left + right / 2, right, value))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="{HEIGHT}" role="img">'
        f"<title>{escape(name)}: {escape(value)}</title>"
        f'<rect width="{left + right}" height="{HEIGHT}" rx="3" fill="#4a4a4a"/>'
        f'<path d="M{left} 0h{right - 3}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3h-{right - 3}z" fill="{colour}"/>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">{texts}</g></svg>\n'
    )


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in badges().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
