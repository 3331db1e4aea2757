"""Print what pyproject.toml asks for, in the form `pip install` takes.

build   the requirements of the build, for builds without isolation
lint    the extra of that name, which needs nothing of the package
oldest  the oldest admitted versions of all that the package may import, and any version of the test tools
"""

import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def requirements(kind):
    config = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))
    project = config["project"]
    extras = project["optional-dependencies"]
    if kind == "build":
        return config["build-system"]["requires"]
    if kind == "lint":
        return extras["lint"]
    if kind == "oldest":
        imported = project["dependencies"] + extras["plot"] + extras["images"]
        tools = [tool for tool in extras["dev"] if not tool.startswith(project["name"])]
        return [pin(requirement) for requirement in imported] + tools
    raise SystemExit(f"kind must be build, lint or oldest, got {kind!r}")


def pin(requirement):
    return requirement.replace(">=", "==")


if __name__ == "__main__":
    print(*requirements(sys.argv[1]))
