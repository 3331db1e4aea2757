"""The size and the order of the package, counted: modules, bases, parameters, names, docstrings, lines of code.

    python benchmarks/house.py

Counts the tree that it stands in, by reading its sources alone: copied into a checkout of another commit, it counts
that one. Journeys through the code are counted by ``journeys.py``, types by mypy, coverage by ``make coverage``.
"""

import ast
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "sklearn_crf"
FEW_LINES = 100  # of a module that may belong into its only importer


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(path, tree):
    """Names of the modules that a file imports, relative ones made absolute."""
    package = module_name(path).split(".")
    package = package if path.stem == "__init__" else package[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            yield source
            yield from (f"{source}.{alias.name}" for alias in node.names)


def docstring_node(node):
    """The expression that is the docstring of a module, class or function, or None."""
    first = node.body[0] if getattr(node, "body", None) else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return first
    return None


def exported_names(trees):
    """Names that some package exports."""
    names = set()
    for path, tree in trees.items():
        if path.stem == "__init__":
            names.update(node.value for node in ast.walk(tree) if is_text(node) and node.value.isidentifier())
    return names


def is_text(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def bases_of_exported(trees, exported):
    """Names of the classes that an exported class inherits from: their public methods are public."""
    bases = defaultdict(set)
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases[node.name].update(getattr(base, "id", getattr(base, "attr", "")) for base in node.bases)
    found, waiting = set(), [name for name in exported if name in bases]
    while waiting:
        new = bases.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def documented(tree, is_private=False, exported=None, inherited=frozenset()):
    """Every module, class and function with a docstring: the docstring and whether the object is private.

    In private modules everything is private that no package exports, but for what exported classes inherit.
    """
    own, inner, of_members = is_private, exported, None
    if isinstance(tree, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        hidden = tree.name.startswith("_") and not tree.name.endswith("__")
        own = own or hidden or (exported is not None and tree.name not in exported)
        inner = None
        of_members = False if isinstance(tree, ast.ClassDef) and tree.name in inherited else None
    docstring = docstring_node(tree) if isinstance(tree, ast.Module | ast.ClassDef | ast.FunctionDef) else None
    if docstring is not None:
        yield docstring, own
    inside_function = isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef)
    for child in ast.iter_child_nodes(tree):
        yield from documented(child, (own if of_members is None else of_members) or inside_function, inner, inherited)


def n_code_lines(text, tree):
    """Lines without docstrings, comments and blanks."""
    in_docstrings = set()
    for docstring, _ in documented(tree):
        in_docstrings.update(range(docstring.lineno, docstring.end_lineno + 1))
    lines = enumerate(text.splitlines(), start=1)
    return sum(1 for i, line in lines if i not in in_docstrings and line.strip() and not line.strip().startswith("#"))


def report(title, value):
    print(f"{title:60s} {value}")


def report_modules(trees):
    folders = Counter(str(path.parent.relative_to(ROOT)) for path in trees if path.stem != "__init__")
    for folder, count in sorted(folders.items()):
        report(f"modules in {folder}", count)
    importers = defaultdict(set)
    names = {module_name(path): path for path in trees}
    for path, tree in trees.items():
        for module in imported_modules(path, tree):
            if module in names and names[module] != path:
                importers[module].add(path)
    lonely = [
        name
        for name, users in importers.items()
        if name.split(".")[-1].startswith("_") and len(users) == 1 and next(iter(users)).stem != "__init__"
    ]
    small = [name for name in lonely if len(names[name].read_text(encoding="utf-8").splitlines()) < FEW_LINES]
    report("private modules with a single importer", len(lonely))
    report(f"of these with fewer than {FEW_LINES} lines", len(small))
    private = sum(
        module.startswith("sklearn_crf.")
        and any(part.startswith("_") and not part.startswith("__") for part in module.split(".")[2:-1])
        and module.split(".")[1] != module_name(path).split(".")[1:2][0]
        for path, tree in trees.items()
        if len(module_name(path).split(".")) > 1
        for module in imported_modules(path, tree)
        if len(module.split(".")) > 2
    )
    report("names imported from another package's private modules", private)


def report_estimators(trees):
    classes, all_names = {}, Counter()
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                all_names[node.name] += 1
                classes.setdefault(node.name, node)
    for name in estimator_names():
        if name not in classes:
            continue
        bases = ancestors(name, classes)
        functions = [item for base in bases for item in classes[base].body if isinstance(item, ast.FunctionDef)]
        private = {item.name for item in functions if item.name.startswith("_") and not item.name.startswith("__")}
        init = next((item for item in functions if item.name == "__init__"), None)
        n_parameters = 0 if init is None else len(init.args.args) + len(init.args.kwonlyargs) - 1
        report(name, f"{len(bases)} classes {len(private)} private methods {n_parameters} parameters")
    colliding = sorted(name for name, count in all_names.items() if count > 1)
    report("classes that share a name with another", f"{len(colliding)} {' '.join(colliding)}")


def estimator_names():
    """Public estimators, by the names that the package exports."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    names = {node.value for node in ast.walk(tree) if is_text(node)}
    return sorted(name for name in names if name.isidentifier() and name[:1].isupper())


def ancestors(name, classes):
    """A class and its bases in the package, in the order of a depth-first search."""
    found, waiting = [], [name]
    while waiting:
        name = waiting.pop(0)
        if name in found:
            continue
        found.append(name)
        bases = [getattr(base, "id", getattr(base, "attr", "")) for base in classes[name].bases]
        waiting = [base for base in bases if base in classes] + waiting
    return found


def report_texts(trees):
    exported = exported_names(trees)
    inherited = bases_of_exported(trees, exported)
    n_what = n_private_lines = n_private = n_code = n_long = 0
    for path, tree in trees.items():
        text = path.read_text(encoding="utf-8")
        n_code += n_code_lines(text, tree)
        is_module_private = any(part.startswith("_") for part in module_name(path).split("."))
        for docstring, is_private in documented(tree, False, exported if is_module_private else None, inherited):
            n_what += docstring.value.value.lstrip().startswith("What ")
            if is_private:
                n_private += 1
                n_private_lines += docstring.end_lineno - docstring.lineno + 1
    for path in [*ROOT.glob("*.rst"), *(ROOT / "docs").rglob("*.rst")]:
        if "generated" not in path.parts:
            n_long += sum(len(line) > 120 for line in path.read_text(encoding="utf-8").splitlines())
    report('docstrings that begin with "What"', n_what)
    report("lines of docstrings of private objects", f"{n_private_lines} on {n_private} objects")
    report("lines of Python without docstrings, comments and blanks", n_code)
    report("lines of documentation over 120 columns", n_long)


def main():
    paths = sorted(PACKAGE.rglob("*.py"))
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}
    report_modules(trees)
    report_estimators(trees)
    report_texts(trees)


if __name__ == "__main__":
    main()
