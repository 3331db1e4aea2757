"""Results of benchmarks in JSON files, from which interrupted benchmarks continue."""

import json


def read_record(path, empty):
    """Return the content of a file, or ``empty`` if it does not exist or ``path`` is None."""
    return empty if path is None or not path.exists() else json.loads(path.read_text(encoding="utf-8"))


def write_record(path, record):
    """Write a record to a file, unless ``path`` is None.

    The new file replaces the old file in one step, so a run that is stopped while it writes loses nothing.
    """
    if path is None:
        return
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    part.replace(path)


def recorded(path, key, run):
    """Return the value of a key in a file, or else compute it by ``run()`` and store it; ``path`` may be None."""
    record = read_record(path, {})
    if key not in record:
        record[key] = run()
        write_record(path, record)
    return record[key]
