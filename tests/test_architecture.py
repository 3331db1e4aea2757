"""The architecture of the package: directions of imports, allowed names, and lengths of files."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sklearn_crf

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "sklearn_crf"
SOURCES = sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyx"), *PACKAGE.rglob("*.pxd")])
MODULES = [path for path in SOURCES if path.suffix == ".py"]
HEADERS = sorted([*PACKAGE.rglob("*.h"), *PACKAGE.rglob("*.hpp")])
MAX_LINES = 600

# A unit is a folder or a file right under sklearn_crf. It may import units of earlier tiers and other files of itself.
TIERS = [
    {"_reports"},
    {"kernels", "_numbers", "_own_methods", "_threads"},
    {"_options", "_parameters", "_ranges", "_versions", "distributed", "graphs"},
    {"_fits", "models"},
    {"optimize"},
    {"encoding"},
    {"inference"},
    {"_energies", "potentials"},
    {"objectives"},
    {"metrics", "model_selection"},
    {"preprocessing", "datasets"},
    {"learning"},
    {"estimators", "rtf", "mfa"},
    {"inspection"},
    {"calibration", "dense", "display", "large_images", "multilabel", "pipeline"},
    {"restoration"},
    {"__init__"},
    {"__main__"},
]
TIER = {unit: tier for tier, units in enumerate(TIERS) for unit in units}

# Families inside these units, in the order in which they may import each other; all may import the unit's root.
FAMILIES = {
    "inference": [
        "exact",
        "local",
        "messages",
        "bounds",
        "relaxations",
        "cuts",
        "gaussian",
        "automatic",
    ],
    "objectives": ["likelihood", "margin", "contrastive", "fast_paths"],
}
# Short modules with a single importer belong into the importer. Exceptions are listed here, each with its reason.
SATELLITE_LINES = 100
SATELLITES: dict[str, str] = {}

STANDS_ALONE = {"kernels", "optimize"}  # these units are independent of the package
# Learning minimises over weights, and some inference algorithms minimise over a division of scores among subproblems.
# Modules between them pass functions on, but minimise nothing.
ONLY_FOR = {"optimize": ("inference", "learning", "dense", "rtf", "mfa", "__init__")}
THIRD_PARTY = {"numpy", "scipy", "sklearn", "joblib", "threadpoolctl"}
THIRD_PARTY_OF = {"kernels": {"numpy", "scipy"}, "optimize": {"numpy", "scipy"}}
CYTHON = {"cython", "cpython", "libc", "libcpp"}
OPTIONAL = {
    "dask",
    "distributed",
    "matplotlib",
    "pandas",
    "PIL",
    "skimage",
    "ray",
    "rich",
    "tqdm",
}  # the package can be imported without these modules

# Python's parser cannot read Cython, whose import statements are single lines here.
CYTHON_FROM = re.compile(r"^\s*from\s+([\w.]+)\s+c?import\s+\(?([^)\n]*)", re.MULTILINE)
CYTHON_IMPORT = re.compile(r"^\s*c?import\s+([\w.]+)", re.MULTILINE)


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def unit_of(module):
    """Return the folder or file directly under the package that contains `module`; for the package it is "__init__"."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imports(path):
    """Return (module, is at top level) for every import of a file, with relative imports made absolute."""
    text = path.read_text(encoding="utf-8")
    package = ".".join(path.relative_to(ROOT).parent.parts)
    if path.suffix == ".py":
        return list(python_imports(ast.parse(text), package))
    return list(cython_imports(text, package))


def python_imports(tree, package):
    top_level = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in top_level) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names]
            source = "." * node.level + (node.module or "")
            yield from ((module, id(node) in top_level) for module in imported_from(package, source, names))


def cython_imports(text, package):
    for source, names in CYTHON_FROM.findall(text):
        yield from ((module, True) for module in imported_from(package, source, re.findall(r"\w+", names)))
    yield from ((module, True) for module in CYTHON_IMPORT.findall(text))


def imported_from(package, source, names):
    level = len(source) - len(source.lstrip("."))
    if level:
        base = package.split(".")
        source = ".".join([*base[: len(base) - level + 1], source[level:]]).rstrip(".")
    # In `from sklearn_crf import graphs` and `from . import graphs`, the imported names are units.
    return [f"{source}.{name}" for name in names] if source == "sklearn_crf" else [source]


def n_lines(path):
    return len(path.read_text(encoding="utf-8").splitlines())


def inner_imports(path):
    return [module for module, _ in imports(path) if module.split(".")[0] == "sklearn_crf"]


def arrow_problem(importer, imported):
    """Return what is wrong with unit `importer` importing unit `imported`, or None."""
    if importer == imported:
        return None
    if imported not in TIER:
        return "is in no tier"
    if importer in STANDS_ALONE:
        return f"but {importer} must know nothing of the package"
    if importer not in ONLY_FOR.get(imported, TIER):
        return f"which only {', '.join(ONLY_FOR[imported])} may"
    if TIER[imported] < TIER[importer]:
        return None
    return "and that arrow runs back"


def test_arrows_that_run_back_are_seen():
    assert arrow_problem("graphs", "inference")
    assert arrow_problem("inference", "objectives")
    assert arrow_problem("objectives", "optimize")
    assert arrow_problem("kernels", "graphs")
    assert arrow_problem("optimize", "inference")
    assert not arrow_problem("learning", "optimize")
    assert not arrow_problem("inference", "optimize")
    assert not arrow_problem("potentials", "graphs")


def test_imports_are_read():
    python = "from . import graphs\nfrom ..models import PairwiseModel\ndef f():\n    import matplotlib.pyplot"
    assert list(python_imports(ast.parse(python), "sklearn_crf.inference")) == [
        ("sklearn_crf.inference", True),
        ("sklearn_crf.models", True),
        ("matplotlib.pyplot", False),
    ]
    cython = "cimport cython\nfrom libc.math cimport exp, log\nfrom .. import graphs\n"
    assert sorted(module for module, _ in cython_imports(cython, "sklearn_crf.kernels")) == [
        "cython",
        "libc.math",
        "sklearn_crf.graphs",
    ]


def test_every_unit_has_a_place():
    assert {unit_of(module_name(path)) for path in SOURCES} <= TIER.keys(), "TIERS says what each may import"


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_imports_point_one_way(path):
    unit = unit_of(module_name(path))
    for module in inner_imports(path):
        problem = arrow_problem(unit, unit_of(module))
        assert problem is None, f"{module_name(path)} imports {module}, {problem}"


def family_of(module):
    """Return the unit and the family of a module; the family is None for modules in a unit's root."""
    unit, *rest = module.split(".")[1:]
    families = FAMILIES.get(unit, [])
    return unit, rest[0] if rest and rest[0] in families else None


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_families_point_one_way(path):
    if path.stem == "__init__":
        return
    unit, family = family_of(module_name(path))
    if unit not in FAMILIES:
        return
    order = FAMILIES[unit]
    for module in inner_imports(path):
        other, imported = family_of(module) if "." in module else (None, None)
        if other != unit or imported is None or imported == family:
            continue
        assert family is not None, f"{module_name(path)} is shared by all families and imports {module} of one"
        assert order.index(imported) < order.index(family), f"{module_name(path)} imports {module}, which runs back"


def test_small_modules_have_several_users():
    users = {module_name(path): set() for path in MODULES}
    for path in MODULES:
        for module in inner_imports(path):
            if module in users:
                users[module].add(path)
    lonely = {
        name
        for name, importers in users.items()
        if name.split(".")[-1].startswith("_")
        and len(importers) == 1
        and next(iter(importers)).stem != "__init__"
        and n_lines(ROOT / (name.replace(".", "/") + ".py")) < SATELLITE_LINES
    }
    assert lonely == SATELLITES.keys(), "short modules with a single importer belong into the importer"


def test_no_circles():
    graph = {module_name(path): set(inner_imports(path)) for path in MODULES}
    # Skip __init__.py files: they import all files of their package, so each would seem to be part of a circle.
    graph = {module: imported for module, imported in graph.items() if module_name_is_file(module)}
    while graph:
        leaves = {module for module, imported in graph.items() if not imported & graph.keys() - {module}}
        assert leaves, f"these import each other in a circle: {sorted(graph)}"
        graph = {module: imported for module, imported in graph.items() if module not in leaves}


def module_name_is_file(module):
    return (ROOT / (module.replace(".", "/") + ".py")).exists()


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_third_party_imports(path):
    unit = unit_of(module_name(path))
    allowed = THIRD_PARTY_OF.get(unit, THIRD_PARTY) | (CYTHON if path.suffix != ".py" else set())
    for module, top_level in imports(path):
        name = module.split(".")[0]
        if name == "sklearn_crf" or name in sys.stdlib_module_names:
            continue
        if name in OPTIONAL and unit not in THIRD_PARTY_OF:
            assert not top_level, f"{module_name(path)} must import {name} inside the function that needs it"
        else:
            assert name in allowed, f"{module_name(path)} imports {name}, {unit} may import {sorted(allowed)}"


@pytest.mark.parametrize("path", SOURCES + HEADERS, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_are_short(path):
    assert n_lines(path) <= MAX_LINES, f"{module_name(path)} has {n_lines(path)} lines: two ideas, two files"


def test_files_are_named_after_an_idea():
    vague = {"utils", "util", "helpers", "misc", "common", "tools"}
    assert not [module_name(path) for path in SOURCES if path.stem.strip("_") in vague]


def test_version_is_a_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|rc\d+)?", sklearn_crf.__version__)


def test_names_at_the_root_are_imported_when_they_are_used():
    code = (
        "import sys, sklearn_crf\n"
        "assert not [name for name in sys.modules if name.startswith('sklearn_crf.')]\n"
        "assert set(sklearn_crf.__all__) == set(sklearn_crf._MODULE_OF) <= set(dir(sklearn_crf))\n"
        "for name in sklearn_crf.__all__: assert getattr(sklearn_crf, name).__name__ == name\n"
        "for name in sklearn_crf._SUBMODULES: getattr(sklearn_crf, name)\n"
        "assert not hasattr(sklearn_crf, 'nothing')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_classifiers_load_little_beside_linear_models():
    of_others = "dask matplotlib pandas ray scipy.ndimage scipy.signal scipy.stats skimage sklearn.ensemble"
    of_this_package = "dense display mfa preprocessing rtf"
    heavy = {*of_others.split(), *(f"sklearn_crf.{name}" for name in of_this_package.split())}
    code = (
        "import sys, sklearn.linear_model\n"
        "before = set(sys.modules)\n"
        "from sklearn_crf import ContrastiveCRF, DRFClassifier, M3NClassifier, TRWCRF\n"
        f"loaded = (set(sys.modules) - before) & {heavy}\n"
        "assert not loaded, sorted(loaded)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_submodules_are_found_as_attributes():
    found = {path.stem if path.suffix else path.name for path in PACKAGE.iterdir() if path.suffix in ("", ".py")}
    assert {name for name in found if not name.startswith("_")} - {"kernels"} == sklearn_crf._SUBMODULES


def test_benchmarks_are_listed():
    folder = ROOT / "benchmarks"
    listed = (folder / "README.rst").read_text(encoding="utf-8")
    scripts = [path for path in folder.glob("*/*.py") if path.parent.name != "support" and path.stem != "_path"]
    assert len(scripts) > 50
    assert [path.name for path in scripts if f"``{path.parent.name}/{path.name}``" not in listed] == []
    assert [path.name for path in folder.glob("*.py")] == []


def test_benchmarks_that_pages_name_exist():
    pages = [*(ROOT / "docs").rglob("*.rst"), *ROOT.glob("*.rst")]
    named = {
        name for page in pages for name in re.findall(r"benchmarks/\w+/\w+\.\w+", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 40
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []
