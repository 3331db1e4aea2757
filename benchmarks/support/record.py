"""Results of benchmarks that go on where they stopped, in JSON files."""

import json


def read_record(path, empty):
    """What a file holds, or ``empty`` where there is no such file; ``path`` may be None."""
    return empty if path is None or not path.exists() else json.loads(path.read_text(encoding="utf-8"))


def write_record(path, record):
    """Write a file anew, unless ``path`` is None.

    It takes the place of the old one as a whole: a run that is stopped while it writes loses nothing.
    """
    if path is None:
        return
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    part.replace(path)


def recorded(path, key, run):
    """What a file holds under a key, or else what ``run()`` returns, which it then holds; ``path`` may be None."""
    record = read_record(path, {})
    if key not in record:
        record[key] = run()
        write_record(path, record)
    return record[key]
