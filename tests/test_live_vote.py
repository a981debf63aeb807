"""Live reading's heart: frames vote, lines are followed, a number is announced once and right."""

import random
from collections.abc import Callable
from math import log

import numpy as np
import pytest

from neocog.errors import UsageError
from neocog.live.announce import Announcer, Rules
from neocog.live.frame_reader import Roi
from neocog.live.pipeline import Settings
from neocog.live.tracks import Agreement, Tracker, Vote
from neocog.network.ctc import BLANK, total
from neocog.reading.policy import Pattern
from tests.live_support import vote

SIZE = (640, 480)


def still(text: str, **more: float) -> Vote:
    return vote(text, **{"x": 99, "y": 99, **more})


class Watcher:
    """Tracks and announces rows, thirty frames a second."""

    def __init__(self, agreement: str = "3/5", rules: Rules | None = None) -> None:
        self.tracker = Tracker(Agreement.parse(agreement))
        self.announcer = Announcer(rules or Rules())
        self.allows: Callable[[str], bool] = lambda text: True
        self.frame = 0
        self.news: list[str] = []

    def see(self, *votes: Vote, times: int = 1) -> list[str]:
        before = len(self.news)
        for _ in range(times):
            tracks = self.tracker.update(votes)
            news = self.announcer.update(tracks, self.frame / 30, (0, 0, *SIZE), allows=self.allows)
            self.news += [one.text for one in news]
            self.frame += 1
        return self.news[before:]

    def see_all(self, scene: str) -> list[str]:
        """See texts in the middle of the frame, each so many times: "471*20 *5" are 20 and 5 empty frames."""
        for text, times in (step.split("*") for step in scene.split()):
            self.see(*([still(text)] if text else []), times=int(times))
        return self.news

    def begin_anew(self) -> None:
        """As after a stream that broke off."""
        self.tracker.tracks = ()
        self.announcer.forget(self.frame / 30)

    @property
    def texts(self) -> list[tuple[int, str]]:
        return [(track.number, track.text) for track in self.tracker.tracks]


def test_agreements_without_majority_and_broken_regions_are_refused():
    for text in ("3", "0/5", "6/5", "2/5", "2/4", "a/b", "-1/3", "3/5/7", ""):
        with pytest.raises(UsageError, match="K/N"):
            Agreement.parse(text)
    for text in ("1,2,3", "a,b,c,d", "0,0,0,5", "-1,0,5,5", "nan,0,5,5"):
        with pytest.raises(UsageError, match="X,Y,WIDTH,HEIGHT"):
            Roi.parse(text)


#: What frames say of a line, and what they say together.
VOTES: dict[str, tuple[list[Vote | None], str, float]] = {
    "too few frames": ([still("17", p=0.9)] * 2, "", 0.0),
    "enough": ([still("17", p=0.9)] * 3, "17", 0.9),
    "signs and all": ([still("1/7", p=0.9, n17=0.1)] * 3, "1/7", 0.9),
    "an empty frame": ([still("17", p=0.9), None, still("17", p=0.8), still("17", p=0.6)], "17", 0.8),
    "what is second everywhere": ([still(one, p=0.5, n17=0.4) for one in ("11", "77", "71")], "17", 0.4),
    "a sure frame counts": ([still("11", p=0.6, n17=0.4)] * 2 + [still("17", p=0.98, n11=0.02)], "17", 0.4),
    "a space is not worth a quarrel": (
        [still("1 7", p=0.3, n17=0.2, n11=0.4)] * 2 + [still("17", p=0.5, n11=0.4)], "1 7", 0.5),
    "nor are signs at its ends": (
        [still("17=", p=0.5, n17=0.3)] + [still("17", p=0.5, **{"n,17.": 0.3})] * 2, "17", 0.8),
    "but one within is": ([still("1/7", p=0.5, n17=0.3)] * 3, "1/7", 0.5),
    "one frame alone decides nothing": ([still("17", p=0.9, n11=0.01)] * 4 + [still("99", p=1.0)], "17", 0.9),
    "old frames are forgotten": ([still("11", p=0.99)] * 3 + [still("17", p=0.99)] * 5, "17", 0.99),
}  # fmt: skip


@pytest.mark.parametrize("name", VOTES)
def test_the_sum_of_log_likelihoods_chooses(name: str) -> None:
    frames, text, p = VOTES[name]
    watcher = Watcher()
    for one in frames:
        watcher.see(*[one] * (one is not None))
    (track,) = watcher.tracker.tracks
    assert (track.text, track.confidence) == (text, pytest.approx(p))


def test_texts_that_a_frame_did_not_propose_have_their_likelihood_in_it() -> None:
    logp = np.full((3, BLANK + 1), -log(BLANK + 1), np.float32)
    said = Vote((), logp, {"17": -8.0})
    assert said.of("23") == pytest.approx(total(logp, "23"), abs=1e-6)
    assert said.of("2345") == -22.0, "one frame says no more against a text"


def test_a_reading_that_is_kept_counts_once_and_is_not_announced_alone() -> None:
    watcher = Watcher()
    watcher.see(still("17"))
    watcher.see(still("17").moved(0, 0), times=9)
    assert (watcher.texts, watcher.tracker.tracks[0].reads, watcher.news) == ([(0, "17")], 1, [])
    watcher.see(still("17"))
    assert watcher.news == ["17"]


def test_lines_are_followed_over_the_frame_until_n_frames_do_not_see_them() -> None:
    watcher = Watcher()
    for step in range(20):
        place = {"x": 5 + 24 * step, "tall": 40 + step}
        watcher.see(*(vote(text, y=y + 10 * step, **place) for text, y in (("4711", 0), ("456", 80))))
    assert watcher.texts == [(0, "4711"), (1, "456")]
    watcher.see(times=5)
    assert not watcher.texts
    for one in (vote("12345"), vote("67809", y=300), vote("12345", tall=100)):
        watcher.see(one)  # elsewhere, or of another size
    assert [track.number for track in watcher.tracker.tracks] == [2, 4, 3]


def test_a_digit_or_a_space_that_comes_and_goes_does_not_break_the_line() -> None:
    watcher = Watcher()
    for step in range(12):
        watcher.see(still("12345", n1245=0.001) if step % 3 else still("1245", n12345=0.1))
    assert watcher.texts == [(0, "12345")]
    watcher = Watcher()
    for one in [still("1 745", p=0.6, n1745=0.4), still("1745", p=0.6, **{"n1 745": 0.4})] * 20:
        watcher.see(one, times=2)
    assert len(watcher.news) == 1


def test_a_number_is_announced_with_its_signs_and_the_characters_of_a_frame_that_read_it() -> None:
    watcher = Watcher()
    right, wrong = still("12/03", p=0.9, n12103=0.05), still("12103", p=0.6, n12_03=0.4)
    for one in [right, wrong, right] * 4:
        watcher.see(one)
    assert watcher.news == ["12/03"]
    assert "".join(char.char for char in watcher.tracker.tracks[0].chars) == "12/03"


#: What is seen, how often, and what is announced.
SCENES = {
    "471*60": "471",
    "471*15": "471",  # within half a second
    "471*2 *60": "",  # too few
    "471*20 *15 471*20": "471",  # covered for a moment it is no new number,
    "471*20 *25 471*20": "471 471",  # out of view it is
    "23*20 *25 7*30 *25 7*30 *25 23*20": "23 7 7 23",
    "12345678*20 87650431*20": "12345678 87650431",
    "10000123*90 10000124*60": "10000123 10000124",  # nearly the same
    "98509383*4 98504383*6 " * 10: "",  # read in two ways
    "98509383*4 98504383*4 " * 3 + "98509383*60": "98509383",  # until the frames make up their mind
    "98509383*2 98504383*1 98509383*5": "98509383",  # one frame that read otherwise delays nothing
    "18992595*3 1992595*9 " * 6: "",  # one of four frames saw a digit more
    "51101075*2 511010751*5 51101075*60": "51101075",  # a mark taken for a digit for a moment
    "98509383*4 *6 98504383*7": "",  # a line that is back is the same line
    "98509383*4 *6 98504383*8": "98504383",  # and announced a frame later
}


@pytest.mark.parametrize("scene", SCENES)
def test_what_is_announced(scene: str) -> None:
    assert Watcher().see_all(scene) == SCENES[scene].split()


#: The lines that stand still, for how many frames, and what is announced.
VIEWS: dict[str, tuple[list[Vote], int, str]] = {
    "the border may cut it off": ([still("471", x=0)], 90, ""),
    "near the border": ([still("471", x=40)], 8, "471"),
    "a digit that fills the frame, at its border": ([still("5", y=2, tall=400)], 20, ""),
    "a digit that fills the frame": ([still("5", y=25, tall=400)], 20, "5"),
    "a number that is hardly likely": ([still("4711", p=0.25, place=0.995)], 60, ""),
    "one on which frames agree": ([still("4711", p=0.35, place=0.995)], 8, "4711"),
    "two parts of a number": ([still("471"), still("04", x=219)], 41, ""),
    "two numbers so near that they may be parts of one": ([still("471"), still("04", x=219)], 42, "04 471"),
    "a sign at the border": ([still("-4711", x=0)], 20, "-4711"),
    "a single digit": ([still("5", p=0.93)], 20, ""),
    "a surer one": ([still("5", p=0.995)], 20, "5"),
    "two digits": ([still("52", p=0.95)], 20, "52"),
    "a single digit for long": ([still("5", p=0.75)], 22, "5"),
    "a single digit, a frame less": ([still("5", p=0.75)], 21, ""),
    "a doubtful one for long": ([still("5", p=0.65)], 60, ""),
    "a digit beside a number": ([still("4711"), still("5", y=300, p=0.85)], 60, "4711"),
    "the same at two places": ([still("471"), still("471", y=299)], 20, "471 471"),
    "the same beside it": ([still("471"), still("471", x=289)], 20, "471 471"),
    "nearly the same": ([still("10000123"), still("10000124", y=299)], 20, "10000123 10000124"),
}


@pytest.mark.parametrize("view", VIEWS)
def test_what_is_announced_of_lines_that_stand_still(view: str) -> None:
    rows, times, news = VIEWS[view]
    assert sorted(Watcher().see(*rows, times=times)) == news.split()


@pytest.mark.parametrize("comes", [True, False])
def test_a_sheet_that_slides_in_or_out_is_not_announced_in_parts(comes: bool) -> None:
    watcher, line = Watcher(), still("12345678")
    watcher.see(line, times=0 if comes else 20)
    for count in range(1, 9):
        first = 0 if comes else count - 1
        part = still("12345678"[first : count if comes else 8], x=99 + 30 * first)
        watcher.see(part, times=2 if comes else 3)
    watcher.see(line, times=20 if comes else 0)
    assert watcher.news == ["12345678"]


def test_noise_and_errors_of_single_frames_do_not_reach_the_announcement() -> None:
    rng = random.Random(5)
    watcher = Watcher()
    for _ in range(600):
        text = "".join(rng.choice("0123456789") for _ in range(3))
        watcher.see(vote(text, x=rng.randrange(500), y=rng.randrange(400)))
    assert watcher.news == []
    rng, watcher = random.Random(3), Watcher()
    for number in range(30):
        text = "".join(rng.choice("0123456789") for _ in range(8))
        for step in range(30):
            seen = "".join(rng.choice("0123456789") if rng.random() < 0.03 else char for char in text)
            if rng.random() < 0.1:
                gone = rng.randrange(8)
                seen = seen[:gone] + seen[gone + 1 :]
            watcher.see(vote(seen, x=100 + step, y=100 + number % 7))
        watcher.see(times=25)
        assert watcher.news[number:] == [text]


def test_what_is_expected_need_not_be_so_sure_and_what_is_not_is_a_reading_all_the_same() -> None:
    assert Watcher(rules=Rules(evidence=0.0)).see(still("5", p=0.82), times=20) == ["5"]
    watcher = Watcher()  # staying for long begins anew with another digit
    assert [watcher.see(still(text, p=0.93), times=17) for text in "535"] == [[]] * 3
    watcher = Watcher()
    watcher.allows = lambda text: len(text) == 6
    assert watcher.see_all("98504383*60 985043*20") == []
    for settings, text, allowed in (
        ({}, "4", True), ({}, "", False), ({"pattern": Pattern("####")}, "123", False),
        ({"pattern": Pattern("##.##.####")}, "21.11.2026", True), ({"length": 4}, "123", False),
        ({"pattern": Pattern("##-##")}, "1234", False), ({"length": 4}, "12/34", True),
    ):  # fmt: skip
        assert Settings(**settings).allows(text) == allowed


def test_what_went_out_of_view_is_told_and_memory_does_not_grow() -> None:
    watcher = Watcher()
    watcher.see_all("471*20")
    assert [text for _ in range(90) for text in (watcher.see() or watcher.announcer.gone)] == ["471"]
    for number in range(100, 200):
        watcher.see_all(f"{number}*20 *20")
    assert len(watcher.announcer._known) <= 3
    assert len(watcher.announcer.said) <= 2


@pytest.mark.parametrize("renewed", [False, True])
@pytest.mark.parametrize("frames", [4, 20])
def test_readings_of_a_stream_that_broke_off_do_not_count(renewed: bool, frames: int) -> None:
    """What was read (4 frames) or announced (20) neither disputes a new text nor makes it doubtful."""
    watcher = Watcher()
    watcher.see_all(f"98509383*{frames}")
    if renewed:
        watcher.begin_anew()
    assert watcher.see(still("98504383"), times=7) == (["98504383"] if renewed else [])
    watcher = Watcher()  # a number that outlasts the break is announced once
    watcher.see_all("471*20")
    watcher.begin_anew()
    assert watcher.see_all("471*60") == ["471"]


@pytest.mark.parametrize(
    ("text", "box", "told"),
    [("10,20,300,200", (10, 20, 300, 200), None), ("0.5,0.5,0.5,0.5", (320, 240, 320, 240), None),
     ("0,0,1,1", (0, 0, 640, 480), None), ("0,0,640,480", (0, 0, 640, 480), None),
     ("0,0,1,0.1", (0, 0, 640, 48), None),
     ("600,400,300,300", (600, 400, 40, 80), "is 640x480): 600,400,40,80 is read"),
     ("0,0,700,480", (0, 0, 640, 480), ": 0,0,640,480 is read"),
     ("900,900,50,50", (0, 0, 640, 480), "less than 24 pixels"),
     ("0,0,0.01,0.5", (0, 0, 640, 480), "less than 24 pixels"),
     ("0.5,0.5,0.6,0.5", (320, 240, 320, 240), "320,240,320,240 is read")],
)  # fmt: skip
def test_the_region_that_is_read_and_what_is_told(text, box, told):
    read, refused = Roi.parse(text).within(SIZE)
    assert read == box
    assert told in refused if told and refused else refused is told
