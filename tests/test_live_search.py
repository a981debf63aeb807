"""Where live reading searches a frame: sheets, regions, and what ink is like."""

from collections.abc import Sequence
from dataclasses import replace

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from neocog.batch.records import Box
from neocog.live.finder import Finder
from neocog.live.frames import Frame
from neocog.live.ink import Grey, Polarity
from neocog.live.look import Roi
from neocog.live.paper import without_desk, without_sheets
from neocog.live.regions import (
    GLANCE_SIDE,
    LEGIBLE,
    REGION_SIDE,
    Part,
    legible,
    planned,
    predicted,
)
from neocog.live.sheets import Sheet, find_sheets, holes_of, pixels_within
from neocog.live.split import Hints, Task, _told, scout, thought
from neocog.live.tracks import Digit, Track, Tracker, inside
from neocog.live.vote import Agreement
from neocog.vision.find import Line
from tests.live_support import row
from tests.support import glyph


class TestRegions:
    FRAME = (0, 0, 640, 480)

    def track(self, text: str, *, x: int = 200, y: int = 200, step: int = 0) -> Track:
        tracker = Tracker(Agreement())
        for n in range(4):
            tracker.update([row(text, x=x + n * step, y=y)])
        return tracker.tracks[0]

    def test_the_region_holds_the_line_with_room_around_it(self) -> None:
        region = predicted([self.track("4711")], self.FRAME)
        assert region is not None
        x, y, width, height = region
        assert x <= 200 - 40
        assert x + width >= 200 + 3 * 30 + 24 + 40
        assert y <= 200 - 40
        assert y + height >= 240 + 40
        assert height >= 0.5 * width, "it is no strip: strips are read by other rules"

    def test_it_goes_ahead_of_a_line_that_moves(self) -> None:
        still = predicted([self.track("4711")], self.FRAME)
        moving = predicted([self.track("4711", x=110, step=30)], self.FRAME)
        assert still is not None
        assert moving is not None
        assert moving[0] + moving[2] > still[0] + still[2] + 50

    def test_it_ends_at_the_bounds(self) -> None:
        region = predicted([self.track("47", x=5, y=5)], (0, 0, 300, 300))
        assert region is not None
        assert region[:2] == (0, 0)

    def test_what_takes_most_of_the_frame_is_no_region(self) -> None:
        lines = [self.track("4711", x=10, y=10), self.track("4711", x=480, y=400)]
        assert predicted(lines, self.FRAME) is None
        assert predicted([], self.FRAME) is None

    def test_marks_at_its_ends_that_are_no_digits_widen_no_region(self) -> None:
        line = self.track("4711", x=200)
        far = Digit((600, 200, 20, 40), (("?", 0.0),), "?", 0.0, present=True)
        stray = replace(line, digits=(*line.digits, far))
        assert predicted([stray], self.FRAME) == predicted([line], self.FRAME)

    def test_every_sixth_frame_is_searched_whole(self) -> None:
        tracks = [self.track("4711")]
        plans = [planned(n, self.FRAME, [], tracks) for n in range(9)]
        whole = [any(part.region == self.FRAME for part in parts) for parts in plans]
        assert whole == [True, *[False] * 5, True, False, False]
        assert {plans[n][0].region for n in (1, 2, 4, 5)} == {predicted(tracks, self.FRAME)}
        assert not plans[1][0].entire

    def test_sheets_are_searched_every_time_and_lines_on_them_not_twice(self) -> None:
        box = (150, 150, 300, 200)
        sheet = Sheet(box, ((150, 150), (450, 150), (450, 350), (150, 350)))
        plans = [planned(n, self.FRAME, [sheet], [self.track("4711")]) for n in range(6)]
        assert all(parts[0].region == box and parts[0].entire for parts in plans)
        assert [len(parts) for parts in plans] == [2, 1, 1, 1, 1, 1]
        beside = planned(1, self.FRAME, [sheet], [self.track("47", x=20, y=20)])
        assert [part.entire for part in beside] == [True, False]

    def test_while_there_is_nothing_all_of_every_frame_is_searched(self) -> None:
        plans = [planned(n, self.FRAME, [], []) for n in range(6)]
        assert all(parts[0].region == self.FRAME for parts in plans)
        assert [parts[0].entire for parts in plans] == [True, False, False] * 2

    def test_lines_that_were_not_searched_keep_their_votes(self) -> None:
        tracker = Tracker(Agreement())
        for _ in range(5):
            tracker.update([row("471", x=99, y=99), row("2086", x=99, y=300)])
        for _ in range(20):
            tracker.update([row("471", x=99, y=99)], [Part((50, 50, 300, 150), 640, entire=True)])
        assert [track.text for track in tracker.tracks] == ["471", "2086"]

    def test_a_line_that_left_the_frame_is_forgotten(self) -> None:
        tracker = Tracker(Agreement())
        for n in range(5):
            tracker.update([row("471", x=560 + 30 * n, y=99)])
        for _ in range(5):
            tracker.update([], [Part((50, 50, 300, 150), 640, entire=True)], self.FRAME)
        assert tracker.tracks == ()

    def test_a_line_is_searched_as_large_as_it_is_legible(self) -> None:
        box = (0, 0, 1500, 900)
        assert legible(box, [], sharp=True) == REGION_SIDE
        assert legible(box, [self.track("471")]) == REGION_SIDE  # 40 pixels high
        assert legible(box, [seen_line(LEGIBLE * 3)]) == 500
        assert legible(box, [seen_line(LEGIBLE * 3)], sharp=True) == REGION_SIDE
        assert legible(box, [seen_line(900)]) < 300

    def test_now_and_then_a_sheet_is_searched_sharply(self) -> None:
        sheet = Sheet((0, 0, 400, 300), ((0, 0), (400, 0), (400, 300), (0, 300)))
        line = seen_line(LEGIBLE * 2)
        sides = [planned(n, self.FRAME, [sheet], [line])[0].long_side for n in range(4, 10)]
        assert sides[-1] > 1.5 * max(sides[:-1])
        bare = [planned(n, self.FRAME, [sheet], [])[0].long_side for n in range(4)]
        assert bare == [REGION_SIDE // 2, REGION_SIDE] * 2
        dull = [planned(n, self.FRAME, [sheet], [], dull=[0])[0].long_side for n in range(12)]
        assert [n for n, side in enumerate(dull) if side == REGION_SIDE] == [3, 9]
        other = [planned(n, self.FRAME, [sheet], [], dull=[1])[0].long_side for n in range(4)]
        assert other == bare

    def test_a_sheet_without_writing_is_seldom_searched_sharply(self) -> None:
        finder = Finder()
        desk = np.full((480, 640, 3), 60, np.uint8)
        desk[100:400, 100:500] = 220
        sides = [finder.find(Frame(n, desk, 0.0, 0.0)).parts[0].long_side for n in range(22)]
        assert [n for n, side in enumerate(sides) if side == REGION_SIDE] == [1, 3, 9, 15, 21]
        written = desk.copy()
        cv2.putText(written, "4711", (150, 300), cv2.FONT_HERSHEY_SIMPLEX, 3, (40, 40, 40), 9)
        finder.find(Frame(22, written, 0.0, 0.0))
        assert finder.find(Frame(23, desk, 0.0, 0.0)).parts[0].long_side == REGION_SIDE

    def test_twice_the_frames_are_searched_sharply_half_as_often(self) -> None:
        sheet = Sheet((0, 0, 400, 300), ((0, 0), (400, 0), (400, 300), (0, 300)))
        plans = [planned(n, self.FRAME, [sheet], [], pace=2) for n in range(24)]
        assert sum(plan[0].long_side == REGION_SIDE for plan in plans) == 6
        assert [n for n, plan in enumerate(plans) if len(plan) == 2] == [0, 12]

    def test_with_a_scout_no_frame_is_searched_whole_or_sharply_without_need(self) -> None:
        sheet = Sheet((0, 0, 400, 300), ((0, 0), (400, 0), (400, 300), (0, 300)))
        plans = [planned(n, self.FRAME, [sheet], [], scouted=True) for n in range(24)]
        assert {(len(plan), plan[0].long_side) for plan in plans} == {(1, REGION_SIDE // 2)}
        bare = [planned(n, self.FRAME, [], [], scouted=True) for n in range(24)]
        assert {plan[0].long_side for plan in bare} == {GLANCE_SIDE}
        beside = replace(self.track("4711"), steady=5, confirmed=0)
        plans = [planned(n, self.FRAME, [], [beside], scouted=True) for n in range(24)]
        assert [n for n, plan in enumerate(plans) if plan[-1].entire] == [0, 6, 12, 18]
        sure = replace(beside, confirmed=1)
        plans = [planned(n, self.FRAME, [], [sure], scouted=True) for n in range(24)]
        assert not any(plan[-1].entire for plan in plans)

    def test_where_a_scout_saw_something_is_searched(self) -> None:
        line = tuple((300 + 30 * n, 300, 20, 28) for n in range(4))
        thoughts = thought([line], [])
        (part,) = planned(1, self.FRAME, [], thoughts, scouted=True)
        assert all(inside(box, part.region) for box in line)
        assert not part.entire
        assert thought([line], [self.track("4711", x=290, y=290)]) == []

    def test_no_frame_is_searched_whole_and_its_sheet_sharply(self) -> None:
        sheet = Sheet((0, 0, 400, 300), ((0, 0), (400, 0), (400, 300), (0, 300)))
        for lines in ([], [seen_line(LEGIBLE * 2)]):
            plans = [planned(n, self.FRAME, [sheet], lines) for n in range(36)]
            sides = [parts[0].long_side for parts in plans]
            assert {min(sides)} == {parts[0].long_side for parts in plans if len(parts) > 1}
            assert max(sides) > min(sides)

    def test_less_is_searched_while_there_are_lines_on_a_sheet(self) -> None:
        sheet = Sheet((150, 150, 300, 200), ((150, 150), (450, 150), (450, 350), (150, 350)))
        bare = [len(planned(n, self.FRAME, [sheet], [])) for n in range(18)]
        sure = [len(planned(n, self.FRAME, [sheet], [self.track("471")])) for n in range(18)]
        assert sum(bare) == 18 + 3
        assert sum(sure) == 18 + 1

    def test_two_lines_that_a_scout_saw_far_apart_are_searched_in_turn(self) -> None:
        lines = [
            tuple((x + 15 * n, y, 10, 14) for n in range(4)) for x, y in ((20, 20), (560, 440))
        ]
        thoughts = thought(lines, [])
        assert predicted(thoughts, self.FRAME) is None
        plans = [planned(n, self.FRAME, [], thoughts, scouted=True) for n in range(6)]
        for line, first in zip(lines, (0, 1), strict=True):
            for (part,) in plans[first::2]:
                assert all(inside(box, part.region) for box in line)
                assert part.long_side > 14 / LEGIBLE * max(part.region[2:])
        followed = self.track("4711")
        plans = [planned(n, self.FRAME, [], [followed, *thoughts], scouted=True) for n in range(6)]
        own = predicted([followed], self.FRAME)
        assert [plan[0].region == own for plan in plans] == [True, False, False] * 2

    def test_two_followed_lines_far_apart_beside_a_sheet_are_searched_in_turn(self) -> None:
        sheet = Sheet((250, 180, 120, 90), ((0, 0), (1, 0), (1, 1), (0, 1)))
        lines = [self.track("47", x=20, y=20), self.track("11", x=560, y=420)]
        assert predicted(lines, self.FRAME) is None
        for scouted in (True, False):
            plans = [planned(n, self.FRAME, [sheet], lines, scouted=scouted) for n in range(1, 6)]
            for line in lines:
                places = [digit.box for digit in line.digits]
                found = [
                    any(inside(box, part.region) for part in plan[1:] for box in places)
                    for plan in plans
                ]
                assert sum(found) >= 2

    def test_a_small_line_has_room_around_it(self) -> None:
        region = predicted(thought([((300, 300, 7, 11),)], []), self.FRAME)
        assert region is not None
        assert min(region[2:]) >= 48
        assert inside((300, 300, 7, 11), region)
        assert predicted(thought([((900, 900, 7, 11),)], []), self.FRAME) is None

    def test_with_a_scout_frames_in_a_row_are_seldom_searched_sharply_and_whole(self) -> None:
        sheet = Sheet((0, 0, 400, 300), ((0, 0), (400, 0), (400, 300), (0, 300)))
        plans = [planned(n, self.FRAME, [sheet], [], scouted=True) for n in range(600)]
        sharp = [n for n, plan in enumerate(plans) if plan[0].long_side == REGION_SIDE]
        whole = [n for n, plan in enumerate(plans) if len(plan) > 1]
        for some in (sharp, whole):
            assert len(some) == 10
            assert some[4] - some[0] == 4, "enough in a row for the frames to agree"
        assert not set(sharp) & set(whole)

    def test_a_sheet_that_takes_the_place_of_a_dull_one_is_searched_sharply(self) -> None:
        def frame(left: int, *, epoch: int = 0) -> Frame:
            desk = np.full((480, 640, 3), 60, np.uint8)
            desk[100:400, left : left + 250] = 220
            return Frame(1, desk, 0.0, 0.0, epoch)

        finder = Finder()
        low, sharp = REGION_SIDE // 2, REGION_SIDE
        sides = [finder.find(frame(40)).parts[0].long_side for _ in range(7)]
        assert sides == [low, sharp, low, sharp, low, low, low], "dull after two sharp searches"
        sides = [finder.find(frame(340)).parts[0].long_side for _ in range(4)]
        assert sides == [sharp, low, sharp, low], "another sheet, dull after two of its own"
        assert finder.find(frame(340, epoch=1)).parts[0].long_side == sharp


class TestHints:
    """What a scout saw of a frame is found by a team in the frames that follow."""

    def sheet(self, texts: list[str], *, wide: int, tall: int) -> Frame:
        """A sheet on a desk with a line for each text."""
        desk = np.full((720, 1280), 70, np.uint8)
        desk[30:690, 100 : 100 + wide] = 215
        for number, text in enumerate(texts):
            for place, char in enumerate(text):
                ink = glyph(int(char), tall, 2.2)
                x = 250 + round(1.5 * tall * place) + (250 if len(text) == 1 else 0)
                y = 330 + (number - len(texts) // 2) * 80
                desk[y : y + tall, x : x + ink.shape[1]] -= (170 * ink).astype(np.uint8)
        return Frame(1, np.repeat(desk[:, :, None], 3, axis=2), 0.0, 0.0)

    @pytest.mark.parametrize(
        ("texts", "wide", "tall"), [(["47182630"] * 7, 1080, 22), (["5"], 700, 24)]
    )
    def test_small_writing_on_a_sheet_is_searched_sharply(
        self, texts: list[str], wide: int, tall: int
    ) -> None:
        frame = self.sheet(texts, wide=wide, tall=tall)
        done = Finder().search(frame, Task(hints=scout(frame, Task(scouts=True))))
        assert done.parts[0].long_side > REGION_SIDE // 2
        lines = done.marks[0].digits()
        assert [len(line.digits) for line in lines] == [len(text) for text in texts]
        untold = Finder().search(frame, Task(hints=Hints()))
        assert not untold.marks[0].digits(), "so small that it is seen in no other way"

    def test_a_sheet_is_told_of_however_much_stands_on_it(self) -> None:
        line = tuple((10 * n, 0, 8, 20) for n in range(24))
        low = ((0, 50, 8, 12),)
        assert _told([line], on_sheet=True) == [line]
        assert _told([*[line] * 9, low], on_sheet=True) == [low]
        assert _told([low, line, line[:2]], on_sheet=False) == [line[:2]]
        assert _told([line[:2]] * 9, on_sheet=False) == []

    def test_where_nobody_tells_the_colour_it_is_judged(self) -> None:
        frame = np.full((96, 320, 3), (200, 200, 210), np.uint8)
        cv2.putText(frame, "471", (60, 70), cv2.FONT_HERSHEY_SIMPLEX, 2, (120, 60, 205), 6)
        page = Frame(1, frame, 0.0, 0.0)
        finder = Finder()
        (part, *_) = finder.search(page, Task(hints=Hints())).parts
        assert finder._grey._channel is None
        finder.search(page, Task())
        assert finder._grey._channel is not None
        assert part.region[2:] == (320, 96)

    def test_a_process_of_a_team_without_hints_knows_ink_and_sheets_without_writing(self) -> None:
        desk = np.full((480, 640, 3), 60, np.uint8)
        desk[40:190, 60:580], desk[250:440, 60:580] = 220, 220
        cv2.putText(desk, "2735", (120, 140), cv2.FONT_HERSHEY_SIMPLEX, 2, (30, 30, 30), 5)
        frame, alone = Frame(0, desk, 0.0, 0.0), Finder()
        team = [Finder(), Finder()]
        for turn in range(8):
            done = alone.search(frame, Task(turn=turn))
            tasks = [Task(first=first, every=2, turn=turn) for first in (0, 1)]
            each = [one.search(frame, task) for one, task in zip(team, tasks, strict=True)]
            joined = {number: marks for one in each for number, marks in one.marks.items()}
            assert sorted(joined) == sorted(done.marks)
            for number, marks in done.marks.items():
                assert boxes(joined[number].digits()) == boxes(marks.digits())
        for finder in (alone, team[1]):
            assert finder._polarity._known[1][0]
        assert alone._nothing.keys() == team[0]._nothing.keys() == {0}


@pytest.mark.parametrize("tall", [120, 140, 200])
def test_two_lines_on_a_low_sheet_or_region_are_two(tall: int) -> None:
    pixels = np.random.default_rng(0).integers(90, 110, (480, 640, 3)).astype(np.uint8)
    pixels[150 : 150 + tall, 80:520] = 225
    for number, text in enumerate(("2735", "8264")):
        place = (150 + 40 * number, 150 + round(tall * (0.42 + 0.47 * number)))
        cv2.putText(pixels, text, place, cv2.FONT_HERSHEY_SIMPLEX, 1.2, (30, 30, 30), 4)
    frame, region = Frame(0, pixels, 0.0, 0.0), Roi(84, 154, 430, tall - 8)
    for roi in (None, region):
        for task in (Task(), Task(hints=scout(frame, Task(scouts=True), roi=roi))):
            assert four_and_four(Finder().search(frame, task, roi=roi).marks[0].digits())


def boxes(lines: Sequence[Line]) -> list[list[Box]]:
    return [[place.box for place in line.digits] for line in lines]


def four_and_four(lines: Sequence[Line]) -> bool:
    return [len(line.digits) for line in lines] == [4, 4]


def seen_line(tall: int) -> Track:
    """A line of one digit, so many pixels high, that was seen on a sheet."""
    box = (100, 100, tall // 2, tall)
    return Track(0, (Digit(box, (("4", 0.9),), "4", 0.9, present=True),))


class TestPaper:
    def test_the_desk_beside_a_sheet_is_gone_and_the_writing_is_not(self) -> None:
        rng = np.random.default_rng(2)
        grey = rng.integers(60, 120, (240, 320)).astype(np.uint8)
        corners = ((60.0, 40.0), (280.0, 60.0), (270.0, 200.0), (50.0, 190.0))
        cv2.fillConvexPoly(grey, np.array(corners, np.int32), 220)
        cv2.putText(grey, "47", (120, 150), cv2.FONT_HERSHEY_SIMPLEX, 2, 30, 5)
        outline = ((63.0, 43.0), (277.0, 63.0), (267.0, 197.0), (53.0, 187.0))
        bare = without_desk(grey, Sheet((0, 0, 320, 240), outline))
        assert np.array_equal(bare[80:180, 80:250], grey[80:180, 80:250])
        assert bare[:30].min() > 200
        assert bare[:, :40].min() > 200
        assert (bare < 120).sum() == (bare[80:180, 80:250] < 120).sum()

    def test_where_writing_runs_along_the_edge_nothing_is_laid_over_it(self) -> None:
        grey = np.full((240, 320), 90, np.uint8)
        cv2.rectangle(grey, (40, 30), (280, 210), 220, -1)
        for top in (40, 100, 160):
            cv2.rectangle(grey, (48, top), (80, top + 25), 20, -1)
            cv2.rectangle(grey, (240, top), (272, top + 25), 20, -1)
        outline = ((45.0, 35.0), (275.0, 35.0), (275.0, 205.0), (45.0, 205.0))
        assert without_desk(grey, Sheet((0, 0, 320, 240), outline)) is grey

    def test_sheets_on_the_desk_are_covered_and_what_is_beside_them_is_not(self) -> None:
        desk = np.full((200, 300), 90, np.uint8)
        cv2.putText(desk, "47", (10, 60), cv2.FONT_HERSHEY_SIMPLEX, 1, 10, 3)
        grey = desk.copy()
        grey[80:180, 100:260] = 230
        sheet = Sheet((1100, 580, 160, 100), ())
        assert np.array_equal(without_sheets(grey, [sheet], (1000, 500)), desk)
        assert without_sheets(grey, [], (0, 0)) is grey

    def test_a_part_that_is_all_paper_stays_as_it_is(self) -> None:
        grey = np.full((100, 200), 200, np.uint8)
        sheet = Sheet((0, 0, 200, 100), ((-9, -9), (210, -9), (210, 110), (-9, 110)))
        assert without_desk(grey, sheet) is grey


class TestSheets:
    def frame(self, *sheets: tuple[Box, int], turn: float = 0.0) -> NDArray[np.uint8]:
        """A rough desk with sheets of a brightness on it, some writing on each."""
        rng = np.random.default_rng(1)
        rough = np.full((480, 640, 3), (90, 110, 140)) + rng.normal(0, 8, (480, 640, 1))
        desk = np.clip(rough, 0, 255).astype(np.uint8)
        for (x, y, width, height), bright in sheets:
            corners = cv2.boxPoints(((x + width / 2, y + height / 2), (width, height), turn))
            cv2.fillConvexPoly(desk, corners.astype(np.int32), (bright, bright, bright))
            place = (x + 40, y + height - 50)
            cv2.putText(desk, "471", place, cv2.FONT_HERSHEY_SIMPLEX, 2, (30, 30, 30), 5)
        return desk

    @pytest.mark.parametrize("bright", [60, 170, 230])
    @pytest.mark.parametrize("turn", [0.0, 7.0])
    def test_a_sheet_is_found(self, bright: int, turn: float) -> None:
        box = (200, 150, 240, 160)
        found = find_sheets(self.frame((box, bright), turn=turn), (0, 0, 640, 480))
        assert len(found) == 1
        x, y, width, height = found[0].box
        assert abs(x + width / 2 - 320) < 12
        assert abs(y + height / 2 - 230) < 12
        assert 240 <= width < 310
        assert 160 <= height < 240

    @pytest.mark.parametrize("dark", [False, True])
    def test_bright_writing_on_a_low_sheet_parts_it_no_more_than_dark(self, dark: bool) -> None:
        box = (100, 150, 440, 110)
        frame = self.frame((box, 225 if dark else 25))
        frame[150:260, 100:540] = 225 if dark else 25
        ink = (30, 30, 30) if dark else (230, 230, 230)
        cv2.putText(frame, "27356", (120, 225), cv2.FONT_HERSHEY_SIMPLEX, 2, ink, 5)
        (sheet,) = find_sheets(frame, (0, 0, 640, 480))
        assert sheet.box[0] < 120
        assert sheet.box[2] > 400
        found = Finder().find(Frame(0, frame, 0.0, 0.0))
        assert len(found.searches[0].digits()[0].digits) == 5

    @pytest.mark.parametrize("scale", [0.8, 1.2, 2.0])
    @pytest.mark.parametrize("bold", [3, 5])
    def test_a_block_of_dark_writing_is_no_sheet(self, scale: float, bold: int) -> None:
        frame = np.full((480, 640, 3), 225, np.uint8)
        for number in range(3):
            place = (150, 150 + round(38 * scale * number))
            cv2.putText(frame, "2735", place, cv2.FONT_HERSHEY_SIMPLEX, scale, (30, 30, 30), bold)
        for bounds in ((0, 0, 640, 480), (100, 60, 430, 300)):
            assert find_sheets(frame, bounds) == []

    def test_what_lies_beside_a_slanting_edge_is_not_on_the_sheet(self) -> None:
        frame = self.frame(((200, 150, 240, 160), 230), turn=12.0)
        (sheet,) = find_sheets(frame, (0, 0, 640, 480))
        x, y, width, height = sheet.box
        assert sheet.holds(x + width / 2, y + height / 2)
        assert not any(sheet.holds(x + a, y + b) for a in (3, width - 3) for b in (3, height - 3))

    def test_places_are_counted_without_their_holes(self) -> None:
        rng = np.random.default_rng(5)
        for _ in range(30):
            coarse = (rng.random((12, 16)) < 0.75).astype(np.uint8)
            picture = cv2.morphologyEx(
                cv2.resize(coarse, (80, 60)), cv2.MORPH_OPEN, np.ones((5, 5))
            )
            contours, tree = cv2.findContours(picture, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
            outer = [n for n in range(len(contours)) if tree[0, n, 3] < 0]
            ink = [
                pixels_within(contours[n])
                - sum(pixels_within(contours[k], inner=True) for k in holes_of(tree[0], n))
                for n in outer
            ]
            _, _, stats, _ = cv2.connectedComponentsWithStats(picture, connectivity=8)
            assert sorted(ink) == sorted(stats[1:, 4].tolist())

    def test_two_sheets_are_found(self) -> None:
        one, two = (30, 100, 240, 160), (350, 200, 250, 180)
        found = find_sheets(self.frame((one, 230), (two, 230)), (0, 0, 640, 480))
        assert len(found) == 2

    def test_a_bare_desk_has_none(self) -> None:
        assert find_sheets(self.frame(), (0, 0, 640, 480)) == []

    def test_a_cup_is_no_sheet(self) -> None:
        frame = self.frame()
        cv2.circle(frame, (300, 200), 90, (230, 230, 230), -1)
        cv2.circle(frame, (300, 200), 70, (60, 30, 30), -1)
        assert find_sheets(frame, (0, 0, 640, 480)) == []

    @pytest.mark.parametrize(("top", "entire"), [(6, True), (-30, False)])
    def test_a_sheet_ends_where_the_frame_still_shows_desk(self, top: int, entire: bool) -> None:
        frame = self.frame(((200, top, 240, 200), 230))
        (sheet,) = find_sheets(frame, (0, 0, 640, 480))
        assert sheet.entire is entire

    def test_beyond_the_bounds_nothing_is_looked_for(self) -> None:
        frame = self.frame(((30, 100, 240, 160), 230))
        assert find_sheets(frame, (320, 0, 320, 480)) == []


class TestGrey:
    def test_red_ink_is_seen_in_the_channel_that_shows_it(self) -> None:
        frame = np.full((100, 200, 3), (200, 200, 210), np.uint8)
        cv2.putText(frame, "12", (40, 70), cv2.FONT_HERSHEY_SIMPLEX, 2, (120, 60, 205), 6)
        grey = Grey()(frame)
        luma = cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY)
        assert int(np.ptp(grey)) > int(np.ptp(luma))


class TestPolarity:
    def test_it_is_judged_again_after_a_few_searches_and_where_nothing_was_found(self) -> None:
        polarity = Polarity()
        told = []
        for _ in range(12):
            told.append(polarity.of(0))
            polarity.note(0, written=True, dark=False)
        assert told == (["auto"] + ["bright"] * 5) * 2
        polarity.note(0, written=False, dark=True)
        assert polarity.of(0) == "auto"

    def test_each_sheet_has_its_own(self) -> None:
        polarity = Polarity()
        polarity.note(0, written=True, dark=False)
        polarity.note(1, written=True, dark=True)
        assert (polarity.of(0), polarity.of(1)) == ("bright", "dark")
