"""Sphinx configuration: handwritten pages, API pages from every `__all__`, a gallery from examples/*/plot_*.py."""

import importlib
import importlib.util
import inspect
import json
import pkgutil
import re
import shutil
import sys
import warnings
from pathlib import Path

import matplotlib
from docutils import nodes

matplotlib.use("Agg")

import sklearn_crf
from sklearn_crf.learning import LEARNINGS

DOCS = Path(__file__).resolve().parent
EXAMPLES = DOCS.parent / "examples"
sys.path.insert(0, str(DOCS))

from capability_table import capability_rows, cost_rows, reason_rows  # noqa: E402
from result_tables import list_table, plain_tables, quality_tables, result_tables, thread_table  # noqa: E402

project = "sklearn_crf"
author = "the sklearn_crf developers"
copyright = f"2026, {author}"
version = release = sklearn_crf.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.extlinks",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "matplotlib.sphinxext.plot_directive",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
]
extlinks = {"doi": ("https://doi.org/%s", "doi:%s"), "arxiv": ("https://arxiv.org/abs/%s", "arXiv:%s")}
# Pages of other projects have regular addresses, so that links to them need no inventory from the network.
OTHER_PROJECTS = {
    "numpy": "https://numpy.org/doc/stable/reference/generated/{}.html",
    "scipy": "https://docs.scipy.org/doc/scipy/reference/generated/{}.html",
    "sklearn": "https://scikit-learn.org/stable/modules/generated/{}.html",
}
# NumPy's random generator has a handwritten page, not a generated page.
OTHER_PAGES = {
    "numpy.random.Generator": "https://numpy.org/doc/stable/reference/random/generator.html#numpy.random.Generator"
}
templates_path = ["_templates"]
# The gallery's pages of run times would load scripts over the network.
exclude_patterns = ["_build", "_templates", "sg_execution_times.rst", "**/sg_execution_times.rst"]

html_theme = "pydata_sphinx_theme"
html_title = "sklearn_crf"  # the default title is longer and covers the navigation bar
html_static_path = ["_static"]
html_favicon = "_static/logo.svg"
html_css_files = ["site.css"]
html_show_sourcelink = False
html_search_scorer = str(DOCS / "search_scores.js")  # a relative path would start at the current folder
html_theme_options = {
    "navigation_with_keys": False,
    "show_prev_next": False,
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "logo": {"text": "sklearn_crf", "image_light": "_static/logo.svg", "image_dark": "_static/logo.svg"},
    "navbar_end": ["versions", "theme-switcher"],
}
toc_object_entries_show_parents = "hide"  # the table of contents beside the page is narrow
html_sidebars = {"index": []}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# Links to other versions are relative to the folder of this version, such as "../0.1.0/".
html_context = {
    "default_mode": "auto",
    "site_versions": json.loads((DOCS / "_static" / "switcher.json").read_text(encoding="utf-8")),
}
if release not in {entry["version"] for entry in html_context["site_versions"]}:
    raise ValueError(f"docs/_static/switcher.json does not list version {release}")

autodoc_typehints = "none"  # docstrings give the types, and Sphinx would expand ArrayLike to five lines
numpydoc_show_class_members = False  # the page template of classes lists the members

# -- Formulas ------------------------------------------------------------------------------------


def local_mathjax():
    """Copy MathJax into the site, so that pages need no network; return its folder and its path there."""
    package = importlib.util.find_spec("sphinx-mathjax-offline")
    source = Path(package.origin).parent / "static" / "mathjax" / "tex-svg-full.js"
    folder = DOCS / "generated" / "static" / "mathjax"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, folder / source.name)
    return str(folder.parent), f"mathjax/{source.name}"


mathjax_folder, mathjax_path = local_mathjax()
html_static_path.append(mathjax_folder)

# -- Pictures -------------------------------------------------------------------------------------

plot_basedir = str(DOCS)
plot_formats = [("png", 120)]
plot_html_show_formats = False
plot_html_show_source_link = False
plot_rcparams = {"figure.figsize": (7, 3.4), "figure.constrained_layout.use": True}
plot_apply_rcparams = True

# -- API pages ------------------------------------------------------------------------------------


def write_api_pages():
    """Write a page for each module with an `__all__`, and return the paths of the pages.

    A page lists only names that the pages before it do not list, so each name has one entry.
    """
    folder = DOCS / "generated" / "api"
    folder.mkdir(parents=True, exist_ok=True)
    listed = set()
    tables = set()
    stubs = set()
    for module_name in public_modules():
        module = importlib.import_module(module_name)
        names = [n for n in sorted(module.__all__) if is_listable(module, n) and id(getattr(module, n)) not in listed]
        listed.update(id(getattr(module, name)) for name in names)
        if names:
            table = folder / f"{module_name}.rst"
            write_if_changed(table, api_page(module, names))
            tables.add(table)
            stubs.update(folder.parent / f"{module_name}.{name}.rst" for name in names)
    # Delete pages of names that no longer exist, because no other page links to them.
    for page in {*folder.glob("*.rst"), *folder.parent.glob("*.rst")} - tables - stubs:
        page.unlink()
    return sorted(map(str, tables))


def public_modules():
    """Return the names of the modules with public names, in the order of api.rst."""
    found = ["sklearn_crf"] + [
        module.name
        for module in pkgutil.walk_packages(sklearn_crf.__path__, "sklearn_crf.")
        if "._" not in module.name and not module.name.startswith("sklearn_crf.kernels")
    ]
    found = [name for name in found if getattr(importlib.import_module(name), "__all__", None)]
    first = re.findall(r"<generated/api/(.+)>", (DOCS / "api.rst").read_text(encoding="utf-8"))
    return sorted(found, key=lambda name: (first.index(name) if name in first else len(first), name))


def is_listable(module, name):
    return inspect.isclass(getattr(module, name)) or inspect.isfunction(getattr(module, name))


def api_page(module, names):
    summary = (inspect.getdoc(module) or "").split("\n\n")[0]
    entries = "\n".join(f"   {name}" for name in names)
    title = module.__name__
    return (
        f"{title}\n{'=' * len(title)}\n\n{summary}\n\n.. currentmodule:: {title}\n\n"
        f".. autosummary::\n   :toctree: ../\n   :nosignatures:\n\n{entries}\n"
    )


def write_if_changed(path, text):
    # With a new modification time, Sphinx would build the page again.
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def skip_member(app, what, name, obj, skip, options):
    """Skip methods inherited from scikit-learn, whose docstrings contain links that are broken in this site."""
    if type(obj).__name__ == "_tuplegetter":  # a field of a named tuple, "Alias for field number 0"
        return True
    module = getattr(inspect.unwrap(obj), "__module__", None) if callable(obj) else None
    return True if module is not None and module.startswith("sklearn.") else skip


def escape_types(app, what, name, obj, options, lines):
    """Escape underscores and stars in types such as "(n_iter_ + 1,)" and "f(**options)", which are not markup."""
    for number, line in enumerate(lines):
        entry, colon, kind = line.partition(" : ")
        if colon and re.fullmatch(r"[\w*, ]+", entry) and "`" not in kind:
            lines[number] = entry + colon + re.sub(r"(?<=\w)_(?!\w)|\*", r"\\\g<0>", kind)


def link_to_other_project(app, env, node, contnode):
    """Return a link to the page of a class or function of another project, or None."""
    target = node.get("reftarget", "")
    address = OTHER_PAGES.get(target, OTHER_PROJECTS.get(target.partition(".")[0]))
    if address and node.get("reftype") in ("class", "func"):
        return nodes.reference("", "", contnode, internal=False, refuri=address.format(target))
    return None


# The pages are listed by name, because the cached environment of an earlier build does not contain new pages.
autosummary_generate = write_api_pages()

# -- Results of benchmarks -----------------------------------------------------------------------


def write_result_tables():
    """Write the tables that pages include: NAME_full.inc and NAME_quick.inc for each folder NAME of docs/results.

    They are written to docs/generated/tables. The files for the automatic choices are auto_labelings.inc,
    auto_marginals.inc and auto_certificates.inc.
    """
    folder = DOCS / "generated" / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    for results, rival in RIVALS.items():
        for name, text in result_tables(DOCS / "results" / results, rival).items():
            write_if_changed(folder / f"{results}_{name}.inc", text)
    for results in TABLES:
        for name, text in plain_tables(DOCS / "results" / results).items():
            write_if_changed(folder / f"{results}_{name}.inc", text)
    for name, text in quality_tables(DOCS / "results" / "auto_quality").items():
        write_if_changed(folder / f"auto_{name}.inc", text)
    rows = json.loads((DOCS / "results" / "threads" / "threads.json").read_text(encoding="utf-8"))
    write_if_changed(folder / "threads.inc", thread_table(rows))


# Folders with a file for each row, and the method to which the tables give differences.
RIVALS = {"rtf_denoising": "BM3D", "rtf_experts": "BM3D", "rtf_jpeg": "input", "rtf_dust": "input"}
# Folders with a file for each table.
TABLES = [
    "ccg_camvid",
    "drf_table1",
    "message_speed",
    "rtf_bsd68",
    "rtf_discrete",
    "rtf_elsewhere",
    "rtf_pictures",
    "showcases",
]

write_result_tables()

# -- Capabilities of the estimators --------------------------------------------------------------


def write_capabilities():
    """Write the tables of what each estimator offers, and of reasons why estimators or learning methods lack it."""
    folder = DOCS / "generated" / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows, options in (
        ("capabilities", capability_rows(), ["class: capabilities"]),
        ("why_not", reason_rows(), []),
        ("costs", cost_rows(), []),
    ):
        write_if_changed(folder / f"{name}.inc", list_table(rows, *options))


write_capabilities()


def write_learnings():
    """Write the table of all values of ``learning``, from the attributes of their classes."""
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: 22 43 20 15", ""]
    rows = [["name", "loss", "needs", "gives"]]
    for name, kind in LEARNINGS.items():
        needs = [f"every label: {kind.why_not['missing labels']}"] if kind.needs_labels else []
        needs += [] if kind().takes_segments else ["no segments"]
        rows.append(
            [
                f':class:`"{name}" <sklearn_crf.learning.{kind.__name__}>`',
                inspect.getdoc(kind).split("\n\n")[0].replace("\n", " "),
                "; ".join(needs),
                "probabilities" if kind.has_distribution else "best labelings",
            ]
        )
    for row in rows:
        lines += [f"   {'*' if number == 0 else ' '} - {cell}".rstrip() for number, cell in enumerate(row)]
    write_if_changed(DOCS / "generated" / "tables" / "learnings.inc", "\n".join(lines) + "\n")


write_learnings()

# -- Gallery --------------------------------------------------------------------------------------

SECTIONS = ["text", "images", "graphs", "restoration", "energies", "selection", "algorithms"]

if any(EXAMPLES.glob("*/plot_*.py")):
    extensions.append("sphinx_gallery.gen_gallery")
    sphinx_gallery_conf = {
        "examples_dirs": str(EXAMPLES),
        "gallery_dirs": "auto_examples",
        "subsection_order": [*(f"../examples/{name}" for name in SECTIONS), "*"],
        "within_subsection_order": "ExampleTitleSortKey",
        "doc_module": ("sklearn_crf",),
        "backreferences_dir": "generated/backreferences",
        "filename_pattern": r"plot_",
        "ignore_pattern": r"demo\.py|__init__\.py",
        "download_all_examples": False,
        "show_memory": False,
        "remove_config_comments": True,
        "abort_on_example_error": True,
        "capture_repr": ("_repr_html_",),  # the value of a last line, such as a legend, is no result
    }
else:
    # The index page links to the gallery even if there are no examples.
    (DOCS / "auto_examples").mkdir(exist_ok=True)
    write_if_changed(DOCS / "auto_examples" / "index.rst", "Examples\n========\n\nNone yet.\n")

# The gallery runs examples with Matplotlib's Agg backend, with which plt.show() warns for each figure.
warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive", category=UserWarning)


def setup(app):
    app.connect("missing-reference", link_to_other_project)
    app.connect("autodoc-skip-member", skip_member)
    app.connect("autodoc-process-docstring", escape_types, priority=1)  # before numpydoc's
