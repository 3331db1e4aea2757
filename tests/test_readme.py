"""The example in the README runs as printed."""

import re
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.rst"


def test_readme_example(capsys):
    text = README.read_text(encoding="utf-8")
    block = re.search(r"\.\. code-block:: python\n\n((?:    .*\n|\n)+)", text).group(1)
    code = "\n".join(line[4:] for line in block.splitlines())
    namespace = {}
    exec(compile(code, "README.rst", "exec"), namespace)
    assert "pixels restored" in capsys.readouterr().out
    assert namespace["field"].score(namespace["X_test"], namespace["y_test"]) > 0.9
