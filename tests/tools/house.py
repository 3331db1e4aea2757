"""Measure the size and tidiness of the package: code, names, private accesses, hooks, constants, annotations.

    python tests/tools/house.py [--list MEASURE] [--record]

Sources are read but not imported, so this file can measure other checkouts too. ``--list`` prints the items that one
measure counted. ``--record`` writes the numbers that ``tests/test_ratchets.py`` compares with. Depth of calls is
measured by ``journeys.py``, types by mypy, and coverage by ``make coverage``.
"""

import argparse
import ast
import json
from collections import Counter
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORD = Path(__file__).with_name("house.json")
# Public names of NumPy, Python and scikit-learn that begin with an underscore
NOT_PRIVATE = {"_asdict", "_fields", "_init_callback_context", "_make", "_replace", "_validate_params"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DOCUMENTED = (ast.Module, ast.ClassDef, *FUNCTIONS)

# Folders and files of pages, at least one of which must mention each public name
PAGES = ("docs/user_guide", "docs/how_to", "docs/tutorial", "docs/migration", "examples")
LONE_PAGES = ("README.rst", "docs/quickstart.rst", "docs/start.rst", "docs/index.rst")


class House:
    """Parsed sources of one checkout, with the measures as properties."""

    def __init__(self, root=ROOT):
        self.root = Path(root)
        paths = sorted((self.root / "sklearn_crf").rglob("*.py"))
        self.texts = {path: path.read_text(encoding="utf-8") for path in paths}
        self.trees = {path: ast.parse(text) for path, text in self.texts.items()}

    def place(self, path, node=None):
        """Return the path of a file relative to the root, followed by the line of a node if one is given."""
        name = path.relative_to(self.root).as_posix()
        return name if node is None else f"{name}:{node.lineno}"

    def unit(self, path):
        """Return the top-level folder of a file in the package, or the name of the file if it is not in a folder."""
        return path.relative_to(self.root / "sklearn_crf").parts[0].removesuffix(".py")

    def nodes(self, *types):
        """Yield (path, node) for all syntax nodes of the given types."""
        for path, tree in self.trees.items():
            yield from ((path, node) for node in ast.walk(tree) if isinstance(node, types))

    # Size ----------------------------------------------------------------------------------------------------------

    @cached_property
    def code_lines(self):
        """Number of lines of Python by unit, without blank lines, comments and docstrings."""
        counts = Counter()
        for path, text in self.texts.items():
            skipped = set()
            for node in ast.walk(self.trees[path]):
                docstring = docstring_of(node)
                if docstring is not None:
                    skipped.update(range(docstring.lineno, docstring.end_lineno + 1))
            lines = enumerate(text.splitlines(), start=1)
            counts[self.unit(path)] += sum(
                i not in skipped and bool(line.strip()) and not line.lstrip().startswith("#") for i, line in lines
            )
        return counts

    @cached_property
    def kernel_lines(self):
        """Number of lines of Cython and C++, without blank lines and lines of comments."""
        paths = [p for kind in ("pyx", "pxd", "h", "hpp") for p in (self.root / "sklearn_crf").rglob(f"*.{kind}")]
        lines = (line.strip() for path in paths for line in path.read_text(encoding="utf-8").splitlines())
        return sum(bool(line) and not line.startswith(("#", "//")) for line in lines)

    @cached_property
    def functions(self):
        return [self.place(path, node) + f" {node.name}" for path, node in self.nodes(*FUNCTIONS)]

    @cached_property
    def classes(self):
        return [self.place(path, node) + f" {node.name}" for path, node in self.nodes(ast.ClassDef)]

    # Names ---------------------------------------------------------------------------------------------------------

    @cached_property
    def exported(self):
        """Public names: the names in ``__all__`` of public modules."""
        names = set()
        for path, tree in self.trees.items():
            parts = path.relative_to(self.root).with_suffix("").parts
            if any(part.startswith("_") and part != "__init__" for part in parts):
                continue
            for node in tree.body:
                if isinstance(node, ast.Assign) and any(getattr(t, "id", "") == "__all__" for t in node.targets):
                    names.update(text.value for text in ast.walk(node.value) if is_text(text))
        return sorted(names)

    @cached_property
    def unnamed(self):
        """Public names that no page of the documentation and no example mentions."""
        paths = [self.root / name for name in LONE_PAGES if (self.root / name).exists()]
        paths += [p for folder in PAGES for p in (self.root / folder).rglob("*") if p.suffix in (".rst", ".py")]
        words = set()
        for path in paths:
            words.update(split_words(path.read_text(encoding="utf-8")))
        return [name for name in self.exported if name not in words]

    # Order ---------------------------------------------------------------------------------------------------------

    @cached_property
    def private_accesses(self):
        """Accesses of ``other._name`` in modules that do not define the name."""
        found = []
        for path, tree in self.trees.items():
            own = own_private_names(tree)
            for node in ast.walk(tree):
                if not isinstance(node, ast.Attribute) or not is_private(node.attr) or node.attr in own:
                    continue
                if getattr(node.value, "id", None) in ("self", "cls") or is_super(node.value):
                    continue
                found.append(self.place(path, node) + f" {ast.unparse(node)}")
        return found

    @cached_property
    def hooks(self):
        """Private methods and class attributes of base classes of estimators that some subclass overrides."""
        classes = {node.name: (path, node) for path, node in self.nodes(ast.ClassDef)}
        methods, flags = set(), set()
        for path, node in classes.values():
            if self.unit(path) != "estimators":
                continue
            for base in ancestors(node, classes):
                if self.unit(classes[base][0]) != "estimators":
                    continue
                here, above = members(node), members(classes[base][1])
                methods |= {n for n in here[0] & above[0] if is_private(n)}
                flags |= {n for n in here[1] & above[1] if n != "_parameter_constraints"}
        return sorted(methods), sorted(flags)

    @cached_property
    def constants(self):
        """Numeric constants of modules other than ``_tuning.py``."""
        found = []
        for path, tree in self.trees.items():
            if path.stem == "_tuning":
                continue
            for node in tree.body:
                targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
                names = [t.id for t in targets if isinstance(t, ast.Name)]
                if names and names[0].isupper() and is_number(getattr(node, "value", None)):
                    found.append(self.place(path, node) + f" {names[0]}")
        return found

    @cached_property
    def unannotated(self):
        """Functions with an argument or result without annotation."""
        found = []
        for path, node in self.nodes(*FUNCTIONS):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            arguments = [a for a in arguments if a.arg not in ("self", "cls")]
            if node.returns is None or any(a.annotation is None for a in arguments):
                found.append(self.place(path, node) + f" {node.name}")
        return found

    @cached_property
    def resolutions(self):
        """Number of calls of functions named ``resolve...`` or ``_resolve...``, by file."""
        counts = Counter()
        for path, node in self.nodes(ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name.lstrip("_").startswith("resolve"):
                counts[self.place(path)] += 1
        return counts


def docstring_of(node):
    """Return the docstring expression of a module, class or function, or None."""
    first = node.body[0] if isinstance(node, DOCUMENTED) and node.body else None
    return first if isinstance(first, ast.Expr) and is_text(first.value) else None


def is_text(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def is_private(name):
    return name.startswith("_") and not name.startswith("__") and name not in NOT_PRIVATE


def is_super(node):
    return isinstance(node, ast.Call) and getattr(node.func, "id", None) == "super"


def is_number(node):
    """Return whether an expression contains only numbers."""
    if isinstance(node, ast.UnaryOp):
        return is_number(node.operand)
    if isinstance(node, ast.BinOp):
        return is_number(node.left) and is_number(node.right)
    if isinstance(node, ast.Tuple):
        return bool(node.elts) and all(is_number(item) for item in node.elts)
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool)


def split_words(text):
    """Return the identifiers in a text."""
    return "".join(c if c.isalnum() or c == "_" else " " for c in text).split()


def own_private_names(tree):
    """Return the private names that a module defines: functions, classes, variables, attributes and fields."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and getattr(node.value, "id", None) in ("self", "cls"):
            names.add(node.attr)
    return {name for name in names if is_private(name)}


def ancestors(node, classes):
    """Return the names of the base classes of a class that the package defines, nearest first."""
    found, waiting = [], [node]
    while waiting:
        for base in waiting.pop(0).bases:
            name = getattr(base, "id", getattr(base, "attr", ""))
            if name in classes and name not in found:
                found.append(name)
                waiting.append(classes[name][1])
    return found


def members(node):
    """Return the names of the methods of a class, and the names of its other attributes."""
    methods, others = set(), set()
    for item in node.body:
        if isinstance(item, FUNCTIONS):
            methods.add(item.name)
        elif isinstance(item, ast.Assign):
            others.update(t.id for t in item.targets if isinstance(t, ast.Name))
        elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            others.add(item.target.id)
    return methods, others


def measures(house):
    """Return {measure: (number, counted items)}. ``tests/test_ratchets.py`` compares the numbers."""
    methods, flags = house.hooks
    kept = {
        "exported names": house.exported,
        "exported names that no page names": house.unnamed,
        "private accesses": house.private_accesses,
        "hooks": methods,
        "class flags": flags,
        "constants": house.constants,
        "functions": house.functions,
        "classes": house.classes,
        "functions without annotations": house.unannotated,
    }
    counted = {name: (len(listed), listed) for name, listed in kept.items()}
    by_file = [f"{count:4d} {name}" for name, count in house.resolutions.most_common()]
    counted["calls that resolve parameters"] = house.resolutions.total(), by_file
    by_unit = [f"{count:6d} {unit}" for unit, count in house.code_lines.most_common()]
    counted["lines of code"] = house.code_lines.total(), by_unit
    counted["lines of kernels"] = house.kernel_lines, []
    return counted


def main():
    parser = argparse.ArgumentParser(description="Size and order of the package.")
    parser.add_argument("--list", metavar="MEASURE", help="print what this measure counted")
    parser.add_argument("--root", default=ROOT, help="the checkout to count")
    parser.add_argument("--record", action="store_true", help="write the numbers that the ratchets compare with")
    options = parser.parse_args()
    house = House(options.root)
    counted = measures(house)
    if options.list:
        print(*counted[options.list][1], sep="\n")
    elif options.record:
        numbers = {name: number for name, (number, _) in counted.items()} | {"lines of code": dict(house.code_lines)}
        RECORD.write_text(json.dumps(numbers, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    else:
        for name, (number, _) in counted.items():
            print(f"{name:40s} {number:6d}")


if __name__ == "__main__":
    main()
