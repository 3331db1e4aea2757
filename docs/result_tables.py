"""Tables of the user guide out of figures that benchmarks keep: docs/results/NAME holds a JSON file a row or table."""

import json

HEADINGS = [
    "setting",
    "method",
    "PSNR",
    "MAE",
    "SSIM",
    "PSNR less {rival}'s",
    "in the thesis",
    "p (Wilcoxon)",
    "seconds an image",
    "training images",
    "minutes of training (of one core)",
]


def result_tables(folder, rival):
    """Text of the tables of one folder by name, ``full`` and ``quick``, as far as there are rows."""
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("row_*.json"))]
    tables = {}
    for name, quick in (("full", False), ("quick", True)):
        own = sorted((row for row in rows if row["quick"] == quick), key=lambda row: (row["setting"], row["psnr"]))
        if own:
            headings = [heading.format(rival=rival) for heading in HEADINGS]
            tables[name] = list_table([headings, *(cells(row) for row in own)])
    return tables


def cells(row):
    def number(key, form):
        return format(row[key], form) if row.get(key) is not None else ""

    minutes = [f"{seconds / 60:.0f}" for seconds in row.get("training_seconds", ())]
    return [
        str(row["setting"]),
        row["method"],
        number("psnr", ".2f"),
        number("mae", ".2f"),
        number("ssim", ".3f"),
        number("to_rival", "+.2f"),
        number("thesis", "+.2f"),
        number("wilcoxon", ".0e"),
        number("seconds", ".2f"),
        str(row.get("options", {}).get("images", "")),
        "{} ({})".format(*minutes) if minutes else "",
    ]


def plain_tables(folder):
    """Text of the tables that a benchmark keeps as rows of cells, headings first, in files table_NAME.json."""
    paths = sorted(folder.glob("table_*.json"))
    return {path.stem.removeprefix("table_"): list_table(json.loads(path.read_text("utf-8"))) for path in paths}


def list_table(rows):
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in rows:
        for number, cell in enumerate(row):
            lines.append(f"   {'* -' if number == 0 else '  -'} {cell}".rstrip())
    return "\n".join(lines) + "\n"
