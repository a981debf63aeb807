"""What Nsight Compute prints as CSV (``ncu --csv --page raw``)."""

import csv
import io

_FACTORS = {"nsecond": 1e-9, "ns": 1e-9, "usecond": 1e-6, "us": 1e-6, "msecond": 1e-3, "ms": 1e-3,
            "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}  # fmt: skip


def launches(text: str, kernel: str, but: str = "no kernel") -> list[dict[str, float]]:
    """Return the metrics of each launch of the kernels whose name holds ``kernel``, not ``but``.

    Times are in seconds, sizes in bytes. Nothing where there is no such table.
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]
    head, *rows = csv.reader(io.StringIO("\n".join(lines))) if lines else [[]]
    if "Kernel Name" not in head:
        return []
    at = head.index("Kernel Name")
    units = rows.pop(0) if rows and not rows[0][0] else [""] * len(head)
    found = []
    for row in rows:
        if kernel in row[at] and but not in row[at]:
            cells = [
                (name, float(value.replace(",", "")) * _FACTORS.get(unit, 1.0))
                for name, value, unit in zip(head, row, units, strict=False)
                if "." in name and value.replace(",", "").replace(".", "", 1).isdecimal()
            ]
            found.append(dict(cells))
    return found
