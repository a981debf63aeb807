"""Measures how made documents are read, digits and the cells they stand in: see README.md.

Lines that were read are brought beside those that were written where that costs the fewest edits.
``--develop``: other documents, with validation digits, to look at.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.harness.record import arguments, totals, write_results
from experiments.lines.score import aligned
from experiments.reading.freeze import DEFAULT
from experiments.reading.sets import digits_of, frozen
from neocog.reading.formats import cells
from neocog.reading.reader import Reader
from neocog.text import edit_distance

KINDS = ("form", "table", "receipt", "note")
Row = dict[str, Any]
Lines = Sequence[Sequence[str]]
COLUMNS = {
    "kind": "documents", "documents": "number", "digits": "digits",
    "cer": "character error rate|.1%", "rows": "rows", "columns": "columns right",
    "exact": "rows read exactly",
}  # fmt: skip


def compared(read: Lines, written: Lines) -> Row:
    """Rows that are right, each read line beside the written one that it is nearest to."""
    ours, theirs = ["".join(row) for row in read], ["".join(row) for row in written]
    edits = np.array([[edit_distance(a, b) for b in theirs] for a in ours])
    _, pairs = aligned(edits.reshape(len(ours), len(theirs)), list(map(len, ours)), list(map(len, theirs)))
    same = [(list(read[i]), list(written[j])) for i, j in pairs]
    columns = sum(list(map(bool, a)) == list(map(bool, b)) for a, b in same)
    return {"rows": len(written), "columns": columns, "exact": sum(a == b for a, b in same)}


def main() -> None:
    args = arguments(__doc__, output=Path, finder=str, develop=False, frozen=DEFAULT).parse_args()
    reader, found = Reader(device="cpu", finder=args.finder), list[Row]()
    for document in frozen(args.frozen, "documents_develop" if args.develop else "documents"):
        page = reader.read(document.file)
        read = [[digits_of(cell) for cell in row] for row in cells(page)]
        written = [[digits_of(cell) for cell in row] for row in json.loads(document.text)]
        text = "".join(map("".join, written))
        wrong = edit_distance(page.plain.replace("\n", ""), text)
        row = {"kind": document.kind, "documents": 1, "digits": len(text), "cer": wrong}
        row |= compared(read, written)
        found.append(row)
        print(document.file.name, *row.values(), flush=True)
        if args.develop:
            print(written, read, sep="\n")
    rows = totals(found, "kind", KINDS, ["cer"], "digits")
    write_results(args.output, rows, columns=COLUMNS, read_by=reader)


if __name__ == "__main__":
    main()
