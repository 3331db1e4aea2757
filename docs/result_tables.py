"""Tables of the user guide from benchmark results: docs/results/NAME has a JSON file for each row or table."""

import json

HEADINGS = [
    "setting",
    "method",
    "PSNR",
    "MAE",
    "SSIM",
    "PSNR less {rival}'s",
    "p (Wilcoxon)",
    "seconds an image",
    "training images",
    "training, s of the processor",
]

MEASURES = [("psnr", ".2f"), ("mae", ".2f"), ("ssim", ".3f")]


def result_tables(folder, rival):
    """Return a dict with the text of the tables ``full`` and ``quick`` of a folder, if they have rows.

    The value of the thesis follows each measure in brackets.
    """
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

    def measure(name, form, k):
        theirs = row.get("thesis_measures")
        return number(name, form) + (f" ({theirs[k]:{form}})" if theirs else "")

    seconds = row.get("training_seconds")
    return [
        str(row["setting"]),
        row["method"],
        *(measure(name, form, k) for k, (name, form) in enumerate(MEASURES)),
        number("to_rival", "+.2f") + (f" ({row['thesis']:+.2f})" if row["thesis"] else ""),
        number("wilcoxon", ".0e"),
        number("seconds", ".2f"),
        str(row.get("options", {}).get("images", "")),
        f"{seconds[1]:.0f}" if seconds else "",
    ]


def plain_tables(folder):
    """Return a dict with the text of each table in files table_NAME.json, which hold rows of cells, headings first."""
    paths = sorted(folder.glob("table_*.json"))
    return {path.stem.removeprefix("table_"): list_table(json.loads(path.read_text("utf-8"))) for path in paths}


def quality_tables(folder):
    """Return a dict with the text of the tables on the automatic choices and on proofs of optimality."""
    tables = {}
    for name, rows_of in (("labelings", labeling_rows), ("marginals", marginal_rows), ("certificates", proof_rows)):
        found = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        tables[name] = list_table(rows_of(found))
    return tables


def labeling_rows(found):
    def signless_zero(value):
        return f"{round(value, 2) + 0.0:.2f}"

    rows = [["kind", "models", "proven", "optimal", "below", "lacks", "ahead", "of toulbar2", "ms"]]
    for row in found["rows"]:
        counts = [str(row[name]) for name in ("models", "proven", "optimal", "below")]
        ends = [f"{round(row[name], 2) + 0.0:+.2f}" for name in ("peer_least", "peer_most") if row["peer_models"]]
        shares = [signless_zero(row[name]) for name in ("lacks", "ahead")]
        rows.append([row["kind"], *counts, *shares, " to ".join(ends), f"{row['milliseconds']:.1f}"])
    return rows


def marginal_rows(found):
    names = ["auto", "BP", "damped", "TRW"]
    rows = [["kind", "models", *names, "ratio", "mostly by"]]
    for row in found["rows"]:
        errors = ["" if row[name] is None else f"{row[name]:.4f}" for name in names]
        rows.append([row["kind"], str(row["models"]), *errors, f"{row['ratio']:.2f}", f"``{row['method']}``"])
    return rows


def proof_rows(found):
    """Return the rows of the models that neither the first relaxation nor the smallest budget proves optimal."""
    works = [f"clusters, {work:.0e}".replace("e+0", "e") for work in found["work"]]
    rows = [["model", "TRW-S or MPLP", *works, f"toulbar2, {found['toulbar2_seconds']} s"]]
    for row in found["rows"]:
        gaps = [row["relaxed"]["gap"], *(proof["gap"] for proof in row["tightened"])]
        if gaps[0] and gaps[1]:
            theirs = "proven" if row["toulbar2"]["proven"] else "no proof"
            rows.append([row["model"], *(f"{100 * gap:.1f} %" if gap else "proven" for gap in gaps), theirs])
    return rows


def thread_table(rows):
    """Return the table of speed-ups: time of one thread, speed-up by more threads, fraction of time with the lock."""
    counts = list(rows[0]["seconds"])
    gains = [f"{n} threads" for n in counts[1:]]
    table = [["work", "step", "one thread", *gains, "processes", "16 threads", "processor", "holds the lock"]]
    for row in rows:
        seconds = row["seconds"]
        times = [f"{seconds[counts[0]] / seconds[n]:.2f}" for n in counts[1:]]
        processes, modelled = f"{row['processes']:.2f}", f"{row['modelled']:.1f}"
        shares = processes, modelled, f"{row['processor']:.2f}", f"{100 * row['lock']:.0f} %"
        table.append([row["row"], row["step"], f"{seconds[counts[0]]:.2f} s", *times, *shares])
    return list_table(table)


def list_table(rows, *options):
    lines = [".. list-table::", "   :header-rows: 1", *(f"   :{option}" for option in options), ""]
    for row in rows:
        for number, cell in enumerate(row):
            lines.append(f"   {'* -' if number == 0 else '  -'} {cell}".rstrip())
    return "\n".join(lines) + "\n"
