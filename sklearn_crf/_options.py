"""Decorator that makes a constructor from the annotated fields of a class, and that inherits field descriptions."""

import re
from dataclasses import dataclass, fields
from functools import partial
from inspect import cleandoc
from itertools import pairwise
from typing import Any, dataclass_transform

# Docstring sections whose entries are inherited by subclasses.
_INHERITED = ("Parameters", "Attributes")


@dataclass_transform(kw_only_default=True, eq_default=False)
def options(cls: Any = None, *, kw_only: bool = True, **defaults: Any) -> Any:
    """Add a constructor to a class; the parameters of the constructor are the annotated fields of the class.

    A subclass may add fields, and its docstring describes only the added fields. Descriptions of inherited fields are
    copied from the base class, with the defaults of the subclass. The constraints of base classes also apply. With
    ``kw_only=False``, the added fields become the first parameters, and may be passed by position. ``defaults``
    replaces the defaults of inherited fields.
    """
    if cls is None:
        return partial(options, kw_only=kw_only, **defaults)
    types = {field.name: field.type for field in fields(cls)} if defaults else {}
    for name, default in defaults.items():
        setattr(cls, name, default)
        cls.__annotations__[name] = types[name]
    if "_parameter_constraints" in vars(cls):
        found = [vars(kind).get("_parameter_constraints", {}) for kind in reversed(cls.__mro__)]
        cls._parameter_constraints = {name: kinds for part in found for name, kinds in part.items()}
    made: Any = dataclass(kw_only=kw_only, eq=False, repr=False)(cls)
    made.__doc__ = _inherit_doc_entries(made)
    return made


def _inherit_doc_entries(cls) -> str:
    """Return the docstring of a class, extended by the parameters and attributes that only base classes describe."""
    own = _split_sections(cls.__doc__)
    bases = [
        _split_sections(base.__doc__) for base in reversed(cls.__mro__[1:]) if "__dataclass_fields__" in vars(base)
    ]
    by_position = [field.name for field in sorted(fields(cls), key=lambda field: bool(field.kw_only))]
    for title in _INHERITED:
        inherited = {name: entry for base in bases for name, entry in _split_entries(base.get(title, [])).items()}
        entries = {name: _replace_default(entry, getattr(cls, name, None)) for name, entry in inherited.items()}
        entries |= _split_entries(own.get(title, []))
        if entries:
            in_order = sorted(entries, key=lambda name: by_position.index(name) if name in by_position else 0)
            own[title] = [line for name in in_order for line in entries[name]]
    order = ["", *_INHERITED, *(title for title in own if title not in ("", *_INHERITED))]
    return "\n\n".join(filter(None, (_render_section(title, own[title]) for title in order if title in own)))


def _split_sections(text):
    """Split a docstring into a dict from section titles to lines; lines before the first title have the title ""."""
    lines = cleandoc(text or "").splitlines()
    found: dict[str, list[str]] = {"": []}
    title = ""
    for line, following in pairwise([*lines, ""]):
        if line and following == "-" * len(line):
            title = line
            found[title] = []
        elif line != "-" * len(title) or not title:
            found[title].append(line)
    return found


def _split_entries(lines):
    """Split a section into a dict from the name of each entry to the lines of the entry."""
    found: dict[str | None, list[str]] = {}
    name = None
    for line in lines:
        if line and not line.startswith(" "):
            name = re.split(r"\s:", line, maxsplit=1)[0].strip()
            found[name] = []
        if name is not None:
            found[name].append(line)
    return {name: "\n".join(entry).rstrip().splitlines() for name, entry in found.items()}


def _replace_default(entry, default):
    """Replace the default value in an entry."""
    shown = f'"{default}"' if isinstance(default, str) else repr(default)
    return [re.sub(r"default=.*$", lambda found: f"default={shown}", entry[0]), *entry[1:]]


def _render_section(title, lines):
    """Convert the title and the lines of a section to text."""
    body = "\n".join(lines).strip("\n")
    return f"{title}\n{'-' * len(title)}\n{body}" if title else body
