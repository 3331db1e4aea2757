"""Classes of options: a constructor from annotated fields, and one description of each field for all subclasses."""

import re
from dataclasses import dataclass, fields
from inspect import cleandoc
from itertools import pairwise
from typing import Any, TypeVar, dataclass_transform

_Class = TypeVar("_Class", bound=type)

# Sections of docstrings whose entries subclasses inherit.
_INHERITED = ("Parameters", "Attributes")


@dataclass_transform(kw_only_default=True, eq_default=False)
def options(cls: _Class) -> _Class:
    """Give a class a constructor of its annotated fields.

    A subclass may add fields and change defaults. Its docstring describes these alone: the descriptions of the others
    are those of its base, with its own defaults.
    """
    made: Any = dataclass(kw_only=True, eq=False, repr=False)(cls)
    made.__doc__ = _with_inherited_entries(made)
    return made


def _with_inherited_entries(cls):
    """Return the docstring of a class with the entries of its base that it does not have itself."""
    own = _sections(cls.__doc__)
    inherited = _sections(next((base.__doc__ for base in cls.__mro__[1:] if "__dataclass_fields__" in vars(base)), ""))
    known = [field.name for field in fields(cls)]
    for title in _INHERITED:
        entries = _entries(inherited.get(title, [])) | _entries(own.get(title, []))
        if title == "Parameters":
            entries = {name: entries[name] for name in known if name in entries}
            entries = {name: _with_default(entry, getattr(cls, name, None)) for name, entry in entries.items()}
        if entries:
            own[title] = [line for entry in entries.values() for line in entry]
    order = ["", *_INHERITED, *(title for title in own if title not in ("", *_INHERITED))]
    parts = [_rendered(title, own[title]) for title in order if title in own]
    return "\n\n".join(part for part in parts if part)


def _sections(text):
    """Return the lines of each section of a docstring by its title, those before the first section by ""."""
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


def _entries(lines):
    """Return the lines of each entry of a section by its name."""
    found: dict[str | None, list[str]] = {}
    name = None
    for line in lines:
        if line and not line.startswith(" "):
            name = re.split(r"\s:", line, maxsplit=1)[0].strip()
            found[name] = []
        if name is not None:
            found[name].append(line)
    return {name: "\n".join(entry).rstrip().splitlines() for name, entry in found.items()}


def _with_default(entry, default):
    """Return an entry with the default that a class has."""
    shown = f'"{default}"' if isinstance(default, str) else repr(default)
    return [re.sub(r"default=.*$", lambda found: f"default={shown}", entry[0]), *entry[1:]]


def _rendered(title, lines):
    """Return a section as text."""
    body = "\n".join(lines).strip("\n")
    return f"{title}\n{'-' * len(title)}\n{body}" if title else body
