"""Texts of a line's columns: against all paths, one by one; automata; what is doubtful; temperature."""

import random
from collections.abc import Iterator
from itertools import groupby, product

import numpy as np
import pytest

from neocog.errors import UsageError
from neocog.learning.calibrate import line_temperature
from neocog.network import ctc
from neocog.network.automaton import GIVEN, Automaton
from neocog.network.ctc import ALPHABET, BLANK
from neocog.reading.policy import Pattern

USED = [*map(ALPHABET.index, "12/ "), BLANK]


def columns(rng: np.random.Generator, count: int, spread: float = 2.0) -> np.ndarray:
    """Log likelihoods (T, n) of the few classes of ``USED``; the others cannot be."""
    logits = np.full((count, BLANK + 1), -np.inf)
    logits[:, USED] = rng.normal(size=(count, len(USED))) * spread
    return logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)


def every_path(logp: np.ndarray) -> Iterator[tuple[str, list[list[int]], float]]:
    """What each path says, in which columns each character of that stands, the path's log likelihood."""
    for path in product(USED, repeat=len(logp)):
        runs = [(code, list(run)) for code, run in groupby(range(len(path)), key=path.__getitem__)]
        runs = [(code, run) for code, run in runs if code != BLANK]
        text = "".join(ALPHABET[code] for code, _ in runs)
        yield text, [run for _, run in runs], logp[range(len(path)), path].sum()


def every_text(logp: np.ndarray) -> dict[str, float]:
    """The log likelihood of each text: the sum over all paths."""
    out: dict[str, float] = {}
    for text, _, value in every_path(logp):
        out[text] = np.logaddexp(out.get(text, -np.inf), value)
    return out


def written(text: str, *doubts: tuple[int, str, float]) -> np.ndarray:
    """Columns that surely say a text, blanks around each character; in some, another class has a share."""
    p = np.full((2 * len(text) + 1, BLANK + 1), 1e-7)
    p[::2, BLANK] = 1
    p[range(1, len(p), 2), [ALPHABET.index(char) for char in text]] = 1
    for column, char, share in doubts:
        p[column] *= 1 - share
        p[column, ALPHABET.index(char) if char else BLANK] += share
    return np.log(p / p.sum(axis=1, keepdims=True))


def likeliest(texts: dict[str, float], count: int) -> list[tuple[str, object]]:
    best = sorted(texts.items(), key=lambda t: -t[1])[:count]
    return [(text, pytest.approx(value)) for text, value in best]


@pytest.mark.parametrize("seed", range(6))
def test_a_text_is_the_sum_of_its_paths(seed: int) -> None:
    logp = columns(np.random.default_rng(seed), 5)
    texts = every_text(logp)
    assert sum(map(np.exp, texts.values())) == pytest.approx(1)
    assert [ctc.total(logp, text) for text in texts] == pytest.approx(list(texts.values()))
    assert ctc.beam(logp, width=24)[:8] == likeliest(texts, 8)


def test_the_best_path() -> None:
    assert ctc.best_path(written("1 12/2")) == "1 12/2"
    assert ctc.best_path(np.zeros((0, BLANK + 1))) == ""
    with pytest.raises(ValueError, match=r"\(3, 24\)"):
        ctc.best_path(np.zeros((3, BLANK)))


@pytest.mark.parametrize("text", ["", "1", "12", "11", "1 1", "112"])
def test_texts_one_edit_away(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctc, "_NEAR", 10_000)
    logp = np.log(np.random.default_rng(0).dirichlet(np.ones(BLANK + 1), size=7))
    ends = range(len(text) + 1)
    wanted = {text[:k] + char + text[k + 1 :] for k in ends[:-1] for char in ("", *ALPHABET)}
    wanted |= {text[:k] + char + text[k:] for k in ends for char in ALPHABET}
    _, found = ctc._near(ctc._sums(logp), text, -np.inf)
    assert found == {other: pytest.approx(ctc.total(logp, other)) for other in wanted}


@pytest.mark.parametrize("text", ["", "2", "12", "11", "1 1"])
def test_a_character_is_at_the_median_of_its_paths(text: str) -> None:
    logp = columns(np.random.default_rng(4), 5)
    ends = np.zeros((2, len(text), len(logp)))  # its first columns, its last
    for said, runs, value in every_path(logp):
        for k, run in enumerate(runs if said == text else ()):
            ends[[0, 1], k, [run[0], run[-1]]] += np.exp(value)
    medians = [(share.cumsum(1) >= share.sum(1, keepdims=True) / 2).argmax(1) for share in ends]
    places, _ = ctc._near(ctc._sums(logp), text, -np.inf)
    assert places == list(zip(*(m.tolist() for m in medians), strict=True))


# --- automata ---


def test_what_patterns_and_lists_permit() -> None:
    dates = Automaton(["##/##/####", "##.##."])
    assert list(map(dates.accepts, ("12/05/1999", "12.05.", "12/05.", "", "12.05.1"))) == [1, 1, 0, 0, 0]
    years = Automaton(texts=["1999", "2001", "19", "2001"])
    assert [years.accepts(text) for text in ("1999", "19", "2001", "199", "x", "20011")] == [1, 1, 1, 0, 0, 0]
    both = Automaton(["####"], texts=["1999", "20.01", "19"])
    assert [both.accepts(text) for text in ("1999", "19", "20.01", "2001")] == [1, 0, 0, 0]


def test_forms_of_dates_permit_dates_alone() -> None:
    days = Automaton(["DD.MM.YYYY", "MM/DD/YY"])
    for text in ("29.02.2024", "31.12.1900", "12/31/99"):
        assert days.accepts(text)
    for text in ("29.02.2023", "77.11.2037", "19.09.0031", "31/12/99", "1.1.2024"):
        assert not days.accepts(text)
    assert Pattern("DD. MM. YY").fits("31.12.99")
    assert Pattern("DD.MM.YYYY").digits == 8
    assert not Automaton(["YYYY-MM-DD"], ["2024-01-31", "2024-02-30"]).accepts("2024-02-30")


@pytest.mark.parametrize(("patterns", "texts", "message"), [
    (["--"], None, "pattern '--': expected a #"),
    (["#\n"], None, "pattern"),
    (["#" * 500], None, "pattern"),
    ([], [], "valid numbers: the list is empty; give"),
    ([], None, "neither a pattern nor valid numbers"),
    (["##"], ["1"], "none has the form '##'; change the list or the pattern"),
    (["DD/MM/YY"], ["31/02/24"], "none has the form 'DD/MM/YY'; change the list or the pattern"),
    (["DD/MM/YY", "##"], None, "those of dates do not go with others; give one kind"),
    (["DD.MM.YYYY"], ["31.12.2024", "1O"], "valid text 2, '1O': expected"),
    (["DDMM" + "Y" * 80 + "Z"], None, "expected a # for each digit"),
    (["DD DD.MM.YY"], None, "expected a # for each digit"),
    ([], ["12", "1O"], "valid text 2, '1O': expected 1 to 200 of the characters 0123456789"),
    ([], ["12\0"], "valid text"),
    ([], [""], "valid text 1, ''"),
    ([], ["1" * 500], "valid text"),
    ([], ("1" for _ in range(2_000_001)), "at most 2000000"),
])  # fmt: skip
def test_what_is_no_automaton(patterns: list[str], texts: list[str] | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Automaton(patterns, texts)


@pytest.mark.parametrize("seed", range(6))
def test_the_best_permitted_texts_are_found(seed: int) -> None:
    logp = columns(np.random.default_rng(seed), 6, spread=6.0)
    texts = every_text(logp)
    form = Automaton(["##/#", "#/#", "##"])
    permitted = {text: texts[text] for text in texts if form.accepts(text)}
    assert ctc.beam(logp, automaton=form)[:2] == likeliest(permitted, 2)
    some = random.Random(seed).sample(sorted(texts.keys() - {""}), 7)
    found = ctc.beam(logp, automaton=Automaton(texts=some))
    assert found == likeliest({text: texts[text] for text in some}, 7)


def test_a_text_far_from_the_best_is_found_among_many() -> None:
    logp, rng = written("12345678", (3, "7", 1e-3), (9, "", 1e-3)), random.Random(0)
    far = ["".join(rng.choices("0123456789", k=8)) for _ in range(50_000)]
    for wanted in ("17345678", "1234678", "1734678"):
        found = ctc.beam(logp, automaton=Automaton(texts=[*far, wanted]))
        assert found[0] == (wanted, pytest.approx(ctc.total(logp, wanted)))


def test_a_number_is_one_that_may_occur() -> None:
    for share, read in ((0.1, "10/30"), (1e-3, "10?30")):  # a form is believed so much, and no more
        logp = written("10130", (5, "/", share))
        free, number = ctc.number(logp), ctc.number(logp, automaton=Automaton(["##/##"]))
        assert (free.text, free.beside, number.text, number.doubtful) == ("10130", 0, "10/30", read)
        odds = np.exp(GIVEN) * share / (1 - share)
        assert number.p == pytest.approx(odds / (odds + 1), abs=0.01)
        assert number.beside == pytest.approx(free.margin, abs=1e-3)
    named = ctc.number(written("12-5"), automaton=Automaton(["No. ##-#", "A##-#B"]))
    assert (named.text, len(named.chars)) == ("A12-5B", 6)
    assert ctc.number(written("1")[:1], automaton=Automaton(["##"])).text == ""


# --- doubts ---


@pytest.mark.parametrize(("text", "doubts", "doubtful", "reasons"), [
    ("1250", (), "1250", []),
    ("1250", ((3, "7", 0.05),), "1250", []),
    ("1250", ((3, "7", 0.2),), "1?50", [ctc.TWO_ANSWERS]),
    ("1250", ((4, ",", 0.2),), "12?50", [ctc.LEFT_OUT]),
    ("1250", ((0, "-", 0.2), (8, "5", 0.2)), "?1250?", [ctc.LEFT_OUT] * 2),
    ("10130", ((5, "/", 0.2),), "10?30", [ctc.TWO_ANSWERS]),
    ("12.50", ((5, "", 0.2),), "12?50", [ctc.NO_CHARACTER]),
    ("1000", ((7, "", 0.2),), "100?", [ctc.NO_CHARACTER]),
    ("12 50", ((5, "", 0.4), (2, " ", 0.4)), "12 50", []),
    ("12 50", ((5, ",", 0.2),), "12?50", [ctc.TWO_ANSWERS]),
])  # fmt: skip
def test_what_may_be_lost_is_marked(text, doubts, doubtful, reasons) -> None:
    number = ctc.number(written(text, *doubts))
    assert (number.text, number.doubtful) == (text, doubtful)
    assert [char.reason for char in number.chars if char.reason] == reasons
    assert number.p == pytest.approx(np.prod([1 - share for *_, share in doubts]), abs=1e-4)
    if len(doubts) == 1:
        assert number.margin == pytest.approx(np.log(1 / doubts[0][2] - 1), abs=1e-3)
    for char in number.chars:
        assert 0 <= char.first <= char.last <= 2 * len(text)
        assert (char.p < 0.9) == (char.reason is not None)


@pytest.mark.parametrize("fill", [-np.log(BLANK + 1), -np.inf, np.nan, 0.0])
@pytest.mark.parametrize("count", [0, 1, 500])
def test_columns_that_say_nothing_take_no_time(fill: float, count: int) -> None:
    logp = np.full((count, BLANK + 1), fill)
    for automaton in (None, Automaton(["###,##"]), Automaton(texts=["12", "1234567"])):
        assert 0 <= ctc.number(logp, automaton=automaton).p <= 1


def test_the_temperature_makes_p_the_share_that_is_right() -> None:
    rng = np.random.default_rng(2)
    lines, texts = [], []
    for _ in range(150):
        logp = columns(rng, 5, spread=3.0)
        codes = [rng.choice(BLANK + 1, p=np.exp(row) / np.exp(row).sum()) for row in logp]
        texts.append("".join(ALPHABET[code] for code, _ in groupby(codes) if code != BLANK))
        lines.append(2 * np.maximum(logp, -200))  # too sure by a factor of two
    assert line_temperature(lines, texts) == pytest.approx(2, rel=0.25)
