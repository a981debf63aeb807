"""Forms: which fields a sheet has, where, and what may stand there (docs/forms.md, form.schema.json)."""

import base64
import hashlib
import json
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from neocog.errors import InputError, UsageError
from neocog.network.automaton import Automaton, permitted
from neocog.reading.policy import Pattern, read_valid
from neocog.text import printable, reason_of, to_json

COLUMNS = "source", "page", "layout", "fit", "residual", "warnings", "error", "doubts"
"""Columns of the table beside those of fields."""

_PAGES = 64  # blanks of a form: 10 MB each where they are compared with pages
_LARGEST = 2**26  # bytes of a form's file, and of a blank sheet's
_KINDS: dict[str, Any] = {
    "object": dict, "array": list, "string": str, "number": (int, float), "integer": int, "boolean": bool,
}  # fmt: skip
_NEXT = "increases by one"
_RULES = f"sum of A, B, ...; same as A; {_NEXT}; luhn; isbn; iban DE; mod 97; weights 3 1 mod 10"
# That a rule of several fields holds by chance: less if a hand did not err in all of them alike.
_CHANCE = 0.01
_LEFT = 1 / 3  # least share of the doubt of the surer field, where one hand writes the same digits in both
# Weighed are all texts of one field with so many of each other; how many in all, how likely beside the best.
_FEW, _MOST, _RARE = 4, 2**14, 1e-6
_TRAILING = re.compile(r"[.,]-+$|[.,=]$")  # 12.-
_PLAIN = re.compile(r"(\d*)(?:[.,](\d*))?")
_GROUPED = re.compile(r"([1-9]\d{0,2}(?:([.,])\d{3})(?:\2\d{3})*)(?:(?!\2)[.,](\d+))?")


class Rule(NamedTuple):
    """What must hold of some fields; ``holds`` takes their texts, and may not know (None)."""

    words: str
    names: tuple[str, ...]
    holds: Callable[..., bool | None]
    chance: float  #: that it holds of other texts
    alike: bool = False  #: whether one hand writes the same in its fields, so that it errs in all of them


class Field(NamedTuple):
    """A field; ``box``: left, top, width, height as shares of the blank page."""

    name: str
    box: tuple[float, ...]
    automaton: Automaton | None
    listed: bool  #: whether a list is part of the automaton
    required: bool


class FormPage(NamedTuple):
    """A page: the bytes of a file with its blank, None for the first input, and which page of that it is.

    ``used``: whether the blank is an input, a sheet that may be filled in.
    """

    blank: bytes | None
    number: int
    fields: tuple[Field, ...]
    used: bool = False


class Layout(NamedTuple):
    """One kind of sheet."""

    name: str
    pages: tuple[FormPage, ...]
    rules: tuple[Rule, ...]


@dataclass(frozen=True)
class Form:
    """A form: its layouts, and a hash of all that it says."""

    layouts: tuple[Layout, ...] = field(compare=False)
    digest: str

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all fields, each once."""
        every = (f.name for layout in self.layouts for page in layout.pages for f in page.fields)
        return tuple(dict.fromkeys(every))

    @property
    def lacks_blank(self) -> bool:
        return any(page.blank is None for layout in self.layouts for page in layout.pages)

    def onto(self, first: bytes) -> "Form":
        """The form with the pages of a filled sheet where it names no blank."""
        digest = hashlib.sha256(self.digest.encode() + first).hexdigest()[:16]
        layouts = list[Layout]()
        for one in self.layouts:
            pages = (page if page.blank else page._replace(blank=first, used=True) for page in one.pages)
            layouts.append(one._replace(pages=tuple(pages)))
        return Form(tuple(layouts), digest)


def load_form(path: str | Path) -> Form:
    """Read a form's file; UsageError, one line with the place, if it is none."""
    return parse_form(_bytes(Path(path), str(path)), Path(path).parent, str(path))


def parse_form(data: bytes, folder: Path | None = None, name: str = "form.json") -> Form:
    """Return the form that JSON describes, as `load_form`; it names files of ``folder``, without one none."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name}: is no JSON ({reason_of(error)}); repair it") from None
    schema = json.loads(Path(__file__).with_name("form.schema.json").read_text("utf-8"))
    for place, why in _faults(found, schema, "", schema["$defs"]):
        raise UsageError(printable(f"{name}: {place}{': ' * bool(place)}{why}"))
    layouts, files, place = list[Layout](), [data], "layouts"
    try:
        if (count := sum(len(layout["pages"]) for layout in found["layouts"])) > _PAGES:
            raise UsageError(f"got {count} pages in all, expected at most {_PAGES}; make two forms")
        for k, layout in enumerate(found["layouts"]):
            if layout["name"] in (one.name for one in layouts):
                place = f"layouts[{k}].name"
                raise UsageError(f"{layout['name']!r} is taken; choose another name")
            pages, order = list[FormPage](), dict[str, Any]()  # names of fields, with their rules
            for n, page in enumerate(layout["pages"]):
                place = f"layouts[{k}].pages[{n}].blank"
                blank = _blank(page.get("blank"), folder)
                if blank is None and len(found["layouts"]) > 1:
                    raise UsageError("is missing; of several layouts each page needs its own")
                files.append(blank or b"")
                fields = list[Field]()
                for m, one in enumerate(page["fields"]):
                    place = f"layouts[{k}].pages[{n}].fields[{m}]"
                    if one["name"] in (*order, *COLUMNS):
                        raise UsageError(f"name {one['name']!r} is taken; choose another one")
                    fields.append(_field(one, folder, files))
                    order[one["name"]] = _strings(one.get("rule"))
                number = n if blank is None else page.get("blank_page", 0)
                pages.append(FormPage(blank, number, tuple(fields)))
            rules = dict[Any, Rule]()  # the same evidence is not weighed twice
            for own, words in ((own, words) for own, some in order.items() for words in some):
                place = f"{layout['name']}: " * (len(found["layouts"]) > 1) + f"rule of {own}"
                rule = _rule(words, own, [*order])
                if (key := (words == _NEXT, frozenset(rule.names))) in rules:
                    raise UsageError(f"{words!r} and {rules[key].words!r} tell the same; leave one out")
                rules[key] = rule
            layouts.append(Layout(layout["name"], tuple(pages), tuple(rules.values())))
    except UsageError as error:  # it may quote a pattern, or the name of a file, of any length
        words = str(error) if len(str(error)) < 500 else f"{str(error)[:250]} ... {str(error)[-200:]}"
        raise UsageError(printable(f"{name}: {place}: {words}")) from None
    digest = hashlib.sha256(b"".join(hashlib.sha256(file).digest() for file in files)).hexdigest()
    return Form(tuple(layouts), digest[:16])


def _faults(
    value: Any, schema: Mapping[str, Any], place: str, defs: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield where JSON is not as a schema says, and how: what form.schema.json has of JSON Schema."""
    schema = defs[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    right = any(isinstance(value, _KINDS[k]) and isinstance(value, bool) == (k == "boolean") for k in kinds)
    if right and isinstance(value, list):
        right = schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
    elif right and isinstance(value, str):
        right = len(value) >= schema.get("minLength", 0) and (
            "pattern" not in schema or re.fullmatch(schema["pattern"], value) is not None
        )
    elif right and isinstance(value, int | float):
        right = schema.get("minimum", value) <= value <= schema.get("maximum", value)
    if not right:
        yield place, f"got {to_json(value)[:60]}, expected {schema['description']}"
    elif isinstance(value, dict):
        known = schema["properties"]
        yield from ((place, f"{key!r} is missing; add it") for key in schema["required"] if key not in value)
        for key, own in value.items():
            if key not in known:
                yield place, f"{key[:60]!r} is unknown, expected {', '.join(known)}"
            else:
                yield from _faults(own, known[key], f"{place}.{key}".lstrip("."), defs)
    elif isinstance(value, list):
        for k, own in enumerate(value):
            yield from _faults(own, schema["items"], f"{place}[{k}]", defs)


def _strings(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else value or []


def _field(value: Mapping[str, Any], folder: Path | None, files: list[bytes]) -> Field:
    left, top, wide, high = box = tuple(map(float, value["box"]))
    if not (left + wide <= 1 + 1e-6 and top + high <= 1 + 1e-6 and min(wide, high) >= 1e-3):
        raise UsageError(f"box {value['box']} leaves the page or is empty; keep it within 0 and 1")
    patterns, valid = _strings(value.get("pattern")), value.get("valid")
    for pattern in patterns:
        Pattern(pattern)
    texts = read_valid(_beside(folder, valid)) if isinstance(valid, str) else valid
    files.append("\n".join(texts or ()).encode())  # for the hash
    automaton, required = permitted(patterns, texts), value.get("required", False)
    return Field(value["name"], box, automaton, texts is not None, required)


def _blank(words: str | None, folder: Path | None) -> bytes | None:
    if words is None or not words.startswith("data:"):
        return None if words is None else _bytes(_beside(folder, words), words)
    try:
        return base64.b64decode(words[words.index(";base64,") + 8 :], validate=True)
    except ValueError:
        raise UsageError("is no base64; expected data:image/png;base64,...") from None


def _beside(folder: Path | None, name: str) -> Path:
    if folder is None:
        raise UsageError(f"{name[:80]!r}: files are not looked for here; give a data URL, or a list [...]")
    return folder / name


def _bytes(path: Path, name: str) -> bytes:
    why = "no such file"
    try:
        if path.is_file():
            with path.open("rb") as stream:
                data = stream.read(_LARGEST + 1)
            if len(data) <= _LARGEST:
                return data
            why = f"more than {_LARGEST >> 20} MiB"
    except (OSError, ValueError) as error:
        why = f"cannot be opened ({reason_of(error).lower()})"
    raise UsageError(f"{name}: {why}; give another file")


def _rule(words: str, own: str, order: Sequence[str]) -> Rule:
    """Return a rule of the field ``own``; ``order``: names of all fields."""
    if found := re.fullmatch("(?:sum of|(same as)) (.+)", words):
        names = [name.strip() for name in found[2].split(",")]
        for k, name in enumerate(names):
            if name not in order:
                raise UsageError(f"there is no field {name[:80]}; name one of this layout")
            if name == own or name in names[:k]:
                raise UsageError(f"{name} is the field itself, or named twice; leave it out")
        if found[1] and len(names) > 1:
            raise UsageError(f"{words[:80]!r} names several fields; give a rule for each")
        return Rule(words, (*names, own), _adds_up, _CHANCE, len(names) == 1)
    if words == _NEXT:
        if (at := order.index(own)) == 0:
            raise UsageError("no field is before it; move the rule to the second one")
        return Rule(words, (order[at - 1], own), partial(_adds_up, more=1), _CHANCE, True)
    if words == "isbn":
        return Rule(words, (own,), _isbn, 1 / 10)
    if found := re.fullmatch(r"iban ([A-Z]{2})|mod 97", words):
        country = "".join(str(ord(c) - 55) for c in found[1] or "")
        return Rule(words, (own,), partial(_mod97, country=country), 1 / 97)
    if found := re.fullmatch(r"luhn|weights ((?:\d{1,3} )+)mod (\d{1,3})", words):
        weights, m = list(map(int, (found[1] or "1 2").split())), int(found[2] or 10)
        if (shared := math.gcd(*weights, m)) != 1:
            raise UsageError(f"{words[:80]!r}: {shared} divides all of them; choose others")
        if m > 1:
            return Rule(words, (own,), partial(_weighed, weights=weights, m=m, luhn=words == "luhn"), 1 / m)
    raise UsageError(f"{words[:80]!r} is unknown, expected one of: {_RULES}")


def digits(text: str) -> str:
    """The digits of a text.

    >>> digits("079-46 1")
    '079461'
    """
    return "".join(filter(str.isdigit, text))


@lru_cache(2**14)
def amount(text: str, *, grouped: bool = True) -> Fraction:
    """The number that a text is, 0 if it is empty; InputError if it is none.

    Points or commas before groups of three digits part thousands; a single one is a decimal point where
    they cannot, and unless ``grouped``.

    >>> [str(amount(text)) for text in ("1 250,50", "1.250,5", "1,250", "0,125", "12.-", "3-", "")]
    ['2501/2', '2501/2', '1250', '1/8', '12', '-3', '0']
    """
    plain = _TRAILING.sub("", text.replace(" ", ""))
    sign = -1 if plain.startswith(("-", "(")) or plain.endswith("-") else 1
    plain = plain.strip("+-()")
    single, parted = _PLAIN.fullmatch(plain), _GROUPED.fullmatch(plain)
    if parted and (grouped or not single):
        return sign * Fraction(f"{digits(parted[1])}.{parted[3] or 0}")
    if single is None or (text and not digits(plain)):
        raise InputError(f"{text[:40]!r} is no number")
    return sign * Fraction(f"{single[1] or 0}.{single[2] or 0}")


def _adds_up(*texts: str, more: int = 0) -> bool | None:
    """Whether they do; None if that depends on whether marks part thousands or are decimal points."""
    if not more and len(texts) == 2 and texts[0] == texts[1]:  # dates too
        return True
    values = ([amount(text, grouped=grouped) for text in texts] for grouped in (True, False))
    first, second = (sum(own[:-1]) + more == own[-1] for own in values)
    return first if first == second else None


def _weighed(text: str, weights: Sequence[int], m: int, luhn: bool = False) -> bool:
    """Whether weights, from the right if ``luhn`` (its products count their digits), give 0 modulo m."""
    own = digits(text)[::-1] if luhn else digits(text)
    products = [int(c) * weights[k % len(weights)] for k, c in enumerate(own)]
    return bool(own) and sum(p // 10 + p % 10 if luhn else p for p in products) % m == 0


def _isbn(text: str) -> bool:
    """Whether it is an ISBN of 13 digits, or one of 10, whose last may be an x."""
    plain = digits(text)
    if len(plain) == 13:
        return _weighed(plain, (1, 3), 10)
    values = [*map(int, plain), *[10] * text.lower().rstrip().endswith("x")]
    return len(values) == 10 and sum(k * v for k, v in zip(range(10, 0, -1), values, strict=True)) % 11 == 0


def _mod97(text: str, country: str) -> bool:
    """Whether digits are 1 modulo 97; of an IBAN the first two, its check digits, come last (ISO 13616)."""
    own = digits(text)
    moved = own[2:] + country + own[:2] if country else own
    return len(own) > 2 and int(moved) % 97 == 1


def _equal(texts: Mapping[str, float], *, once: bool) -> list[tuple[str, float]]:
    """Texts, the likeliest first; unless ``once`` 1.250 is one with a likelier 1250 (digits, amount)."""
    names, out = dict[Any, str](), dict[str, float]()
    for text, p in sorted(texts.items(), key=lambda t: -t[1]):
        same = text
        if not once and digits(text):
            with suppress(InputError):
                key, clear = (amount(text), digits(text)), amount(text) == amount(text, grouped=False)
                same = names.setdefault(key, text) if clear else names.get(key, text)
        out[same] = out.get(same, 0.0) + p
    return sorted(out.items(), key=lambda t: -t[1])


def joint(
    rule: Rule, texts: Sequence[Mapping[str, float]], slip: float
) -> tuple[tuple[str, ...], list[dict[str, float]], bool | None]:
    """Weigh what a rule's fields may say with it: the likeliest, those of each, whether it holds.

    ``texts``: probabilities of each field's texts, of all others the rest; ``slip``: that what is written
    breaks the rule. Bayes: of texts that keep it a share (1 - slip) / chance of their likelihood counts, of
    others slip / (1 - chance), of those not looked at all. What may keep it (None) counts as if it did.
    """
    some, both = [_equal(own, once=len(texts) == 1) for own in texts], operator.mul
    if rule.alike:  # the second one tells half as much
        both = lambda p, q: min(p, q) * max(p, q) ** 0.5  # noqa: E731
    combined = dict[tuple[str, ...], float]()
    far = [k for k, own in enumerate(some) if len(own) > _FEW]  # one may be far from its likeliest text
    for k in [*far, -1][: len(some)]:  # and once without, unless all have more
        found: list[tuple[tuple[str, ...], float]] = [((), 1.0)]
        for n, own in enumerate(some):
            own = own if n == k else own[:_FEW]
            found = [((*said, text), both(p, q)) for said, p in found for text, q in own]
            found = sorted(found, key=lambda t: -t[1])[: _MOST // len(some)]
            found = [one for one in found if one[1] >= _RARE * found[0][1]]
        combined |= found
    rest = 1 - math.prod(sum(own.values()) for own in texts)  # the share of other texts
    chance = rule.chance
    weighed = list[tuple[tuple[str, ...], float, bool | None]]()
    for said, p in combined.items():
        try:
            kept = rule.holds(*said)
        except InputError:
            kept = False
        weighed.append((said, p * (slip / (1 - chance) if kept is False else (1 - slip) / chance), kept))
    best, _, kept = max(weighed, key=lambda t: t[1])
    every = sum(p for _, p, _ in weighed) + max(0.0, rest)
    out = [dict[str, float]() for _ in texts]
    for said, p, _ in weighed:
        for likelier, text in zip(out, said, strict=True):
            likelier[text] = likelier.get(text, 0.0) + p / every
    if rule.alike:
        most = 1 - _LEFT * (1 - max(dict(own)[text] for own, text in zip(some, best, strict=True)))
        for likelier, text in zip(out, best, strict=True):
            likelier[text] = min(likelier[text], most)
    return best, out, kept
