"""Print what pyproject.toml asks for, in the form `pip install` takes.

build         the requirements of the build, for builds without isolation
lint          the extra of that name, which needs nothing of the package
oldest-build  the oldest admitted versions of the requirements of the build
oldest        the oldest admitted versions of all that the package may import but for Ray, and of what its tests read
              and write; any version of the test tools
"""

import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


# Of test tools any version will do.
TOOLS = ("pytest", "hypothesis", "numpydoc", "mypy")


def requirements(kind):
    config = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))
    project = config["project"]
    extras = project["optional-dependencies"]
    if kind == "build":
        return config["build-system"]["requires"]
    if kind == "lint":
        return extras["lint"]
    if kind == "oldest-build":
        return [pin(requirement) for requirement in config["build-system"]["requires"]]
    if kind == "oldest":
        imported = project["dependencies"] + extras["plot"] + extras["images"] + extras["dask"]
        others = [other for other in extras["dev"] if not other.startswith(project["name"])]
        return [pin(each) for each in imported] + [each if each.startswith(TOOLS) else pin(each) for each in others]
    raise SystemExit(f"kind must be build, lint, oldest-build or oldest, got {kind!r}")


def pin(requirement):
    return requirement.replace(">=", "==")


if __name__ == "__main__":
    print(*requirements(sys.argv[1]))
