"""What people write on a line: numbers of all kinds, with their signs."""

from collections.abc import Callable

from neocog.learning.drawing.fields import Rng

_LENGTHS = (0.09, 0.07, 0.12, 0.16, 0.16, 0.13, 0.1, 0.07, 0.05, 0.03, 0.02)


def any_text(rng: Rng, kind: str | None = None) -> str:
    """Make up a line's text, of a ``kind`` of :data:`KINDS` or of any."""
    if kind is None:
        kind = str(rng.choice(list(KINDS), p=[share for _, share in KINDS.values()]))
    return KINDS[kind][0](rng)


def _digits(rng: Rng, count: int) -> str:
    drawn = rng.integers(0, 10, count)
    if rng.random() < 0.12:  # runs
        for i in range(1, count):
            if rng.random() < 0.6:
                drawn[i] = drawn[i - 1]
    if rng.random() < 0.22 and count > 2:
        drawn[rng.integers(1, count) :] = 0
    return "".join(map(str, drawn))


def _grouped(number: str, mark: str) -> str:
    head = len(number) % 3 or 3
    return mark.join([number[:head], *(number[k : k + 3] for k in range(head, len(number), 3))])


def _number(rng: Rng) -> str:
    kind = rng.random()
    if kind < 0.15:
        return str(rng.integers(1800, 2030))
    count = 1 + int(rng.choice(len(_LENGTHS), p=_LENGTHS))
    if kind < 0.3 and count > 3:
        return _grouped(_digits(rng, count), str(rng.choice([".", ",", ".", " "])))
    if count == 1 and rng.random() < 0.2:
        return "1"
    return _digits(rng, count)


def _alike(rng: Rng) -> str:
    """One digit, mostly a 1, alone or again and again."""
    digit = "1" if rng.random() < 0.6 else str(rng.integers(10))
    return digit * (1 if rng.random() < 0.5 else int(rng.integers(2, 13)))


def _few(rng: Rng) -> str:
    count = int(rng.choice([1, 2, 3], p=[0.55, 0.27, 0.18]))
    return "1" * count if rng.random() < 0.15 else "".join(map(str, rng.integers(0, 10, count)))


def _amount(rng: Rng) -> str:
    whole = _digits(rng, int(rng.integers(1, 7))).lstrip("0") or "0"
    point = str(rng.choice([".", ",", "."]))
    if len(whole) > 3 and rng.random() < 0.5:
        whole = _grouped(whole, str(rng.choice([{".": ",", ",": "."}[point], " "])))
    kind = rng.random()
    cents = _digits(rng, 2) if rng.random() < 0.6 else str(rng.choice(["00", "50", "95", "99", "10"]))
    text = whole + point + cents if kind < 0.72 else whole + point + "-" if kind < 0.8 else whole
    if rng.random() < 0.12:
        text = str(rng.choice(["-", "+", "- "])) + text
    ends = ["%", " %", "-", "=", ".-", " -", "--", ".", "*", "#", ",", " =", ".=", ",-", ".--"]
    if rng.random() < 0.3:
        text += str(rng.choice(ends))
    if rng.random() < 0.06:
        text = str(rng.choice(["#", "*", "=", "-"])) + text
    return text


def _date(rng: Rng) -> str:
    day, month, year = int(rng.integers(1, 32)), int(rng.integers(1, 13)), int(rng.integers(1900, 2040))
    mark = str(rng.choice(["/", ".", "-", "/", ". ", " "]))
    padded = rng.random() < 0.6
    parts = [f"{value:02}" if padded else str(value) for value in (day, month)]
    kind = rng.random()
    if kind < 0.12:
        return mark.join([str(year), *parts[::-1]])
    if kind < 0.3:
        return mark.join(parts)
    return mark.join([*parts, str(year) if rng.random() < 0.6 else f"{year % 100:02}"])


def _time(rng: Rng) -> str:
    hour = rng.integers(0, 24)
    text = f"{hour:02}" if rng.random() < 0.6 else str(hour)
    mark = str(rng.choice([":", ":", "."]))
    text += f"{mark}{rng.integers(0, 60):02}"
    if rng.random() < 0.2:
        text += f"{mark}{rng.integers(0, 60):02}"
    return f"{text}-{rng.integers(0, 24)}{mark}{rng.integers(0, 60):02}" if rng.random() < 0.1 else text


def _phone(rng: Rng) -> str:
    rest, text = _digits(rng, int(rng.integers(7, 12))), ""
    kind = rng.random()
    if kind < 0.3:
        text = f"+{rng.integers(1, 100)} "
    elif kind < 0.5:
        text, rest = f"({rest[:3]}){rng.choice(['', ' '])}", rest[3:]
    elif kind < 0.65:
        text, rest = rest[:4] + "/", rest[4:]
    mark = str(rng.choice([" ", "-", "", " ", "."]))
    groups = []
    while rest:
        step = int(rng.integers(2, 5))
        groups.append(rest[:step])
        rest = rest[step:]
    return (text + mark.join(groups)).strip()


def _sum(rng: Rng) -> str:
    a, b = (int(v) for v in rng.integers(0, 100, 2))
    kind = rng.random()
    if kind < 0.35:
        return f"{a}+{b}={a + b}" if rng.random() < 0.5 else f"{a} x {b} = {a * b}"
    mark = str(rng.choice(["+", "-", "x", "=", " x ", " + ", ":", "/", "÷"]))
    return f"{_digits(rng, int(rng.integers(1, 4)))}{mark}{_digits(rng, int(rng.integers(1, 4)))}"


def _marked(rng: Rng) -> str:
    text, kind = _digits(rng, int(rng.integers(1, 6))), rng.random()
    if kind < 0.2:
        return "#" + text
    if kind < 0.4:
        return text[:3] + str(rng.choice(["%", " %", "*", ")", ".", "-"]))
    if kind < 0.6:
        return f"({text})"
    if kind < 0.8:
        return f"{text}-{_digits(rng, int(rng.integers(1, 5)))}"
    ends = ["#", "*", "=", "-"]
    return str(rng.choice(ends)) + text + str(rng.choice([*ends, "/"]))


KINDS: dict[str, tuple[Callable[[Rng], str], float]] = {
    "number": (_number, 0.46),
    "alike": (_alike, 0.04), "few": (_few, 0.0), "amount": (_amount, 0.21), "date": (_date, 0.1),
    "time": (_time, 0.05), "phone": (_phone, 0.05),
    "grade": (lambda rng: f"{rng.integers(0, 21)}/{rng.choice([5, 6, 10, 12, 15, 20, 100])}", 0.025),
    "groups": (lambda rng: " ".join(_digits(rng, 4) for _ in range(int(rng.integers(2, 5)))), 0.015),
    "sum": (_sum, 0.02), "marked": (_marked, 0.03),
}  # fmt: skip
"""Kinds of texts: how each is made up, and its share of the lines."""
