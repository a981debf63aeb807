"""Live reading's heart: frames vote, lines are followed, a number is announced once and right."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neocog.errors import UsageError
from neocog.live.align import align, moved
from neocog.live.announce import Announcer, Rules, alike, at_border, distance, rivals
from neocog.live.expected import Expected
from neocog.live.roi import Roi
from neocog.live.tracks import Row, Tracker
from neocog.live.vote import Agreement
from tests.live_support import row

SIZE = (640, 480)
TEXTS = st.text("0123456789?", min_size=1, max_size=8)


def places(text: str, *, x: int = 0, y: int = 100) -> Row:
    return row(text, x=x, y=y)


class Watcher:
    """Tracks and announces rows, thirty frames a second."""

    def __init__(self, agreement: str = "3/5", rules: Rules | None = None) -> None:
        self.tracker = Tracker(Agreement.parse(agreement))
        self.announcer = Announcer(rules)
        self.allows: Callable[[str], bool] = lambda text: True
        self.frame = 0
        self.news: list[str] = []

    def see(self, *rows: Row, times: int = 1) -> list[str]:
        before = len(self.news)
        for _ in range(times):
            tracks = self.tracker.update(rows)
            news = self.announcer.update(tracks, self.frame / 30, SIZE, allows=self.allows)
            self.news += [one.text for one in news]
            self.frame += 1
        return self.news[before:]

    @property
    def texts(self) -> list[str]:
        return [track.text for track in self.tracker.tracks]


class TestAgreement:
    def test_a_digit_is_what_k_of_the_last_n_frames_saw(self) -> None:
        three = Agreement(3, 5)
        votes = (("7", 0.8), ("1", 0.9), ("7", 0.9), None, ("7", 1.0))
        assert three.decide(votes) == ("7", 0.9)
        assert three.decide(votes[:4]) == ("?", 0.0)

    def test_rejected_answers_are_no_votes_but_show_that_something_is_there(self) -> None:
        three = Agreement(3, 5)
        votes = (("?", 0.3), ("?", 0.3), ("?", 0.2))
        assert three.decide(votes) == ("?", 0.0)
        assert three.present(votes)

    def test_votes_beyond_n_are_forgotten(self) -> None:
        two = Agreement(2, 3)
        votes = ()
        for char in "1127":
            votes = two.add(votes, (char, 1.0))
        assert [vote[0] for vote in votes if vote] == ["1", "2", "7"]

    @pytest.mark.parametrize("text", ["3", "0/5", "6/5", "2/5", "2/4", "a/b", "-1/3", "3/5/7", ""])
    def test_what_is_no_majority_is_refused(self, text: str) -> None:
        with pytest.raises(UsageError, match="K/N"):
            Agreement.parse(text)

    @given(st.lists(st.one_of(st.none(), st.sampled_from("0123456789?")), max_size=12))
    def test_at_most_one_answer_can_agree(self, chars: list[str | None]) -> None:
        agreement = Agreement(3, 5)
        votes = ()
        for char in chars:
            votes = agreement.add(votes, None if char is None else (char, 0.9))
        seen = [vote[0] for vote in votes if vote and vote[0] != "?"]
        most = max((seen.count(char) for char in seen), default=0)
        char, _ = agreement.decide(votes)
        assert (char != "?") == (most >= 3)


class TestAlign:
    def test_a_line_that_stands_still_costs_nothing(self) -> None:
        pairs, cost = align(places("123"), places("123"))
        assert pairs == ((0, 0), (1, 1), (2, 2))
        assert cost == 0

    def test_a_line_that_moved_by_one_digit_is_not_taken_for_its_neighbours(self) -> None:
        old, new = places("12345678"), places("12345678", x=30)
        pairs, _ = align(old, new)
        assert pairs == tuple((n, n) for n in range(8))
        assert moved(old, new, pairs) == (30, 0)

    def test_a_digit_that_was_missed_has_no_partner(self) -> None:
        old = places("12345")
        new = [*old[:2], *old[3:]]
        pairs, _ = align(old, new)
        assert pairs == ((0, 0), (1, 1), (2, None), (3, 2), (4, 3))

    def test_a_new_digit_has_no_partner(self) -> None:
        pairs, _ = align(places("123"), places("1234"))
        assert pairs[-1] == (None, 3)

    def test_a_misread_digit_keeps_its_place(self) -> None:
        pairs, cost = align(places("12345"), places("12745"))
        assert pairs == tuple((n, n) for n in range(5))
        assert 0 < cost < 0.2

    def test_other_numbers_elsewhere_are_strangers(self) -> None:
        _, cost = align(places("12345"), places("67809", y=300))
        assert cost > 0.55

    def test_lines_of_another_size_are_strangers(self) -> None:
        large = row("123", tall=100)
        assert align(places("123"), large)[1] > 1

    @given(TEXTS, TEXTS, st.integers(-60, 60), st.integers(-30, 30))
    def test_pairs_are_in_order_and_complete(self, a: str, b: str, dx: int, dy: int) -> None:
        pairs, _ = align(places(a), places(b, x=dx, y=100 + dy))
        assert [i for i, _ in pairs if i is not None] == list(range(len(a)))
        assert [j for _, j in pairs if j is not None] == list(range(len(b)))


class TestTracks:
    def test_until_frames_agree_nothing_is_told(self) -> None:
        watcher = Watcher()
        watcher.see(row("123"), times=2)
        assert watcher.texts == [""]
        watcher.see(row("123"))
        assert watcher.texts == ["123"]

    def test_one_misread_frame_changes_nothing(self) -> None:
        watcher = Watcher()
        watcher.see(row("12345678"), times=4)
        watcher.see(row("12345673"))
        assert watcher.texts == ["12345678"]

    def test_frames_that_disagree_make_a_question_mark(self) -> None:
        watcher = Watcher()
        for chars in ("17", "11", "17", "1?", "11"):
            watcher.see(row(chars))
        assert watcher.texts == ["1?"]

    def test_a_line_is_followed_over_the_frame(self) -> None:
        watcher = Watcher()
        for step in range(20):
            watcher.see(row("4711", x=5 + 24 * step, y=10 * step))
        assert len(watcher.tracker.tracks) == 1
        assert watcher.texts == ["4711"]

    def test_two_lines_are_followed_apart(self) -> None:
        watcher = Watcher()
        for step in range(6):
            watcher.see(row("123", x=50 + step, y=100), row("456", x=50 + step, y=180))
        assert watcher.texts == ["123", "456"]

    def test_a_line_that_is_gone_is_forgotten(self) -> None:
        watcher = Watcher()
        watcher.see(row("123"), times=5)
        watcher.see(times=5)
        assert watcher.tracker.tracks == ()

    def test_a_flicker_of_a_digit_does_not_break_the_line(self) -> None:
        watcher = Watcher()
        line = row("12345", x=50)
        for step in range(12):
            watcher.see(line if step % 3 else (*line[:2], *line[3:]))
        assert watcher.texts == ["12345"]
        assert len({track.number for track in watcher.tracker.tracks}) == 1


class TestAnnouncements:
    def test_a_number_is_announced_once(self) -> None:
        watcher = Watcher()
        assert watcher.see(row("471", x=99, y=99), times=60) == ["471"]

    def test_it_is_announced_within_half_a_second(self) -> None:
        watcher = Watcher()
        assert watcher.see(row("471", x=99, y=99), times=15) == ["471"]

    def test_a_number_shown_for_two_frames_is_not_announced(self) -> None:
        watcher = Watcher()
        watcher.see(row("471", x=99, y=99), times=2)
        assert watcher.see(times=60) == []

    def test_a_short_absence_makes_no_new_number(self) -> None:
        watcher = Watcher()
        watcher.see(row("471", x=99, y=99), times=20)
        watcher.see(times=20)
        assert watcher.see(row("471", x=150, y=120), times=20) == []

    def test_a_long_absence_does(self) -> None:
        watcher = Watcher()
        watcher.see(row("471", x=99, y=99), times=20)
        watcher.see(times=90)
        assert watcher.see(row("471", x=99, y=99), times=20) == ["471"]

    def test_a_blurred_minute_makes_no_new_number(self) -> None:
        watcher = Watcher()
        watcher.see(row("471", x=99, y=99), times=20)
        watcher.see(row("4?1", x=99, y=99), times=300)
        assert watcher.see(row("471", x=99, y=99), times=20) == []

    def test_the_next_number_is_announced(self) -> None:
        watcher = Watcher()
        watcher.see(row("12345678", x=99, y=99), times=20)
        assert watcher.see(row("87650431", x=99, y=99), times=20) == ["87650431"]

    def test_a_sheet_that_slides_in_is_not_announced_in_parts(self) -> None:
        watcher = Watcher()
        line = row("12345678", x=99, y=99)
        for count in range(1, 9):
            watcher.see(line[:count], times=2)
        watcher.see(line, times=20)
        assert watcher.news == ["12345678"]

    def test_a_sheet_that_slides_out_is_not_announced_in_parts(self) -> None:
        watcher = Watcher()
        line = row("12345678", x=99, y=99)
        watcher.see(line, times=20)
        for count in range(8, 0, -1):
            watcher.see(line[-count:], times=3)
        assert watcher.news == ["12345678"]

    def test_what_the_border_may_cut_off_is_never_announced(self) -> None:
        watcher = Watcher()
        assert watcher.see(row("471", x=0, y=99), times=90) == []
        assert watcher.see(row("471", x=40, y=99), times=5) == ["471"]

    def test_noise_never_announces(self) -> None:
        rng = random.Random(5)
        watcher = Watcher()
        for _ in range(600):
            text = "".join(rng.choice("0123456789") for _ in range(3))
            watcher.see(row(text, x=rng.randrange(500), y=rng.randrange(400)))
        assert watcher.news == []

    def test_errors_of_single_frames_do_not_reach_the_announcement(self) -> None:
        rng = random.Random(3)
        watcher = Watcher()
        for number in range(30):
            text = "".join(rng.choice("0123456789") for _ in range(8))
            for step in range(30):
                seen = list(row(text, x=100 + step, y=100 + number % 7))
                for place in range(8):
                    if rng.random() < 0.03:
                        seen[place] = replace(seen[place], char=rng.choice("0123456789?"))
                if rng.random() < 0.1:
                    del seen[rng.randrange(8)]
                watcher.see(tuple(seen))
            watcher.see(times=25)
            assert watcher.news[number:] == [text]

    def test_a_single_digit_must_be_surer_than_several(self) -> None:
        for text, p, told in (("5", 0.9, False), ("5", 0.995, True), ("52", 0.95, True)):
            line = row(text, x=99, y=99, p=p)
            assert bool(Watcher().see(line, times=60)) is told
            assert Watcher(rules=Rules(evidence=0.0)).see(line, times=60) == [text]

    def test_a_digit_that_is_more_likely_wrong_keeps_a_number_back(self) -> None:
        line = row("4711", x=99, y=99)
        for p, told in ((0.45, []), (0.55, ["4711"])):
            doubtful = (*line[:3], replace(line[3], p=p))
            assert Watcher().see(doubtful, times=60) == told

    def test_what_went_out_of_view_is_told(self) -> None:
        watcher = Watcher()
        watcher.see(row("471", x=99, y=99), times=20)
        gone = []
        for _ in range(90):
            watcher.see()
            gone += watcher.announcer.gone
        assert gone == ["471"]

    def test_memory_does_not_grow(self) -> None:
        watcher = Watcher(rules=Rules(again=0.5))
        for number in range(100, 200):
            watcher.see(row(str(number), x=99, y=99), times=20)
            watcher.see(times=20)
        assert len(watcher.announcer._last) <= 2
        assert len(watcher.announcer._said) <= 2


class TestDisputes:
    """Two readings of one line: the one must be read far more often than the other."""

    def test_a_line_that_is_read_in_two_ways_is_not_announced(self) -> None:
        watcher = Watcher()
        for _ in range(10):
            watcher.see(row("98509383", x=99, y=99), times=4)
            watcher.see(row("98504383", x=99, y=99), times=6)
        assert watcher.news == []

    def test_it_is_when_the_frames_have_made_up_their_mind(self) -> None:
        watcher = Watcher()
        for text in ("98509383", "98504383") * 3:
            watcher.see(row(text, x=99, y=99), times=4)
        assert watcher.see(row("98509383", x=99, y=99), times=60) == ["98509383"]

    def test_what_may_not_be_announced_is_a_reading_all_the_same(self) -> None:
        watcher = Watcher()
        watcher.allows = lambda text: len(text) == 6
        line = row("98504383", x=99, y=99)
        assert watcher.see(line, times=60) == []
        assert watcher.see(line[:6], times=20) == []

    def test_one_frame_that_read_otherwise_delays_nothing(self) -> None:
        watcher = Watcher()
        line, other = row("98509383", x=99, y=99), row("98504383", x=99, y=99)
        watcher.see(line, times=2)
        watcher.see(other)
        assert watcher.see(line, times=5) == ["98509383"]

    def test_a_digit_that_one_of_four_frames_saw_is_not_left_out(self) -> None:
        watcher = Watcher()
        line = row("18992595", x=99, y=99)
        for _ in range(6):
            watcher.see(line, times=3)
            watcher.see(line[:1] + line[2:], times=9)
        assert watcher.news == []

    def test_a_mark_that_was_taken_for_a_digit_for_a_moment_is_left_out(self) -> None:
        watcher = Watcher()
        line = row("511010751", x=99, y=99)
        watcher.see(line[:-1], times=2)
        watcher.see(line, times=5)
        assert watcher.see(line[:-1], times=60) == ["51101075"]

    def test_a_place_that_is_mostly_unknown_is_no_digit(self) -> None:
        watcher = Watcher()
        for _ in range(6):
            watcher.see(row("354?08745", x=99, y=99), times=7)
            watcher.see(row("354108745", x=99, y=99), times=7)
        assert watcher.news == []

    def test_a_line_that_is_back_is_the_same_line(self) -> None:
        watcher = Watcher()
        watcher.see(row("98509383", x=99, y=99), times=4)
        watcher.see(times=6)
        assert watcher.see(row("98504383", x=99, y=99), times=7) == []
        assert watcher.see(row("98504383", x=99, y=99)) == ["98504383"]

    def test_lines_beside_each_other_may_be_nearly_the_same(self) -> None:
        watcher = Watcher()
        upper, lower = row("10000123", x=99, y=99), row("10000124", x=99, y=299)
        watcher.see(upper, lower, times=20)
        assert sorted(watcher.news) == ["10000123", "10000124"]

    def test_the_next_number_may_be_nearly_the_same(self) -> None:
        watcher = Watcher()
        watcher.see(row("10000123", x=99, y=99), times=90)
        assert watcher.see(row("10000124", x=99, y=99), times=60) == ["10000124"]

    @pytest.mark.parametrize(
        ("a", "b", "same"),
        [("98509383", "98504383", True), ("354108745", "35?8745", True), ("642", "64", False),
         ("642", "651", False), ("642", "641", True), ("471", "4711", True)],
    )  # fmt: skip
    def test_rivals(self, a: str, b: str, same: bool) -> None:
        assert rivals(a, b) is rivals(b, a) is same


class TestLikeness:
    @pytest.mark.parametrize(
        ("a", "b", "same"),
        [("1234", "1234", True), ("1234", "1239", True), ("1234", "1299", False),
         ("12", "13", False), ("34", "1234", True), ("7", "1", False)],
    )  # fmt: skip
    def test_alike(self, a: str, b: str, same: bool) -> None:
        assert alike(a, b) is same

    @given(st.text("012", max_size=6), st.text("012", max_size=6))
    def test_distance_is_symmetric(self, a: str, b: str) -> None:
        assert distance(a, b) == distance(b, a) >= abs(len(a) - len(b))

    def test_at_border(self) -> None:
        assert at_border((0, 100, 20, 40), SIZE, 0.1)
        assert at_border((600, 438, 20, 40), SIZE, 0.1)
        assert not at_border((100, 100, 20, 40), SIZE, 0.1)


class TestExpected:
    @pytest.mark.parametrize(
        ("form", "text", "fits"),
        [("####", "1234", True), ("####", "123", False), ("##-##", "1?34", True)],
    )
    def test_allows(self, form: str, text: str, fits: bool) -> None:
        assert Expected.of(form).allows(text) is fits

    def test_signs_are_shown_and_not_read(self) -> None:
        assert Expected.of("##.##.####").shown("21112026") == "21.11.2026"

    def test_a_length_is_a_pattern(self) -> None:
        assert Expected.of(None, 3).digits == 3
        with pytest.raises(UsageError, match="2 digits"):
            Expected.of("###", 2)

    def test_a_pattern_without_a_place_is_refused(self) -> None:
        with pytest.raises(UsageError, match="pattern"):
            Expected.of("abc")

    def test_anything_goes_by_default(self) -> None:
        assert Expected().allows("4")
        assert Expected().shown("471") == "471"


class TestRoi:
    def test_pixels_and_shares(self) -> None:
        assert Roi.parse("10,20,300,200").within(SIZE) == (10, 20, 300, 200)
        assert Roi.parse("0.5,0.5,0.5,0.5").within(SIZE) == (320, 240, 320, 240)

    def test_what_sticks_out_is_cut_off_and_nothing_is_everything(self) -> None:
        assert Roi.parse("600,400,300,300").within(SIZE) == (600, 400, 40, 80)
        assert Roi.parse("900,900,50,50").within(SIZE) == (0, 0, 640, 480)
        assert Roi(-50, 100, 150, 100).within(SIZE) == (0, 100, 100, 100)

    @pytest.mark.parametrize(
        ("text", "told"),
        [("10,20,300,200", None), ("0,0,1,1", None), ("0,0,640,480", None), ("0,0,1,0.1", None),
         ("600,400,300,300", "(the frame is 640x480): 600,400,40,80 is read"),
         ("0,0,700,480", ": 0,0,640,480 is read"), ("900,900,50,50", "less than 24 pixels"),
         ("0,0,0.01,0.5", "less than 24 pixels"), ("0.5,0.5,0.6,0.5", "320,240,320,240 is read")],
    )  # fmt: skip
    def test_what_is_not_read_as_asked_is_told(self, text: str, told: str | None) -> None:
        refused = Roi.parse(text).refused(SIZE)
        assert told in refused if told and refused else refused is told

    @pytest.mark.parametrize("text", ["1,2,3", "a,b,c,d", "0,0,0,5", "-1,0,5,5", "nan,0,5,5"])
    def test_others_are_refused(self, text: str) -> None:
        with pytest.raises(UsageError, match="X,Y,WIDTH,HEIGHT"):
            Roi.parse(text)
