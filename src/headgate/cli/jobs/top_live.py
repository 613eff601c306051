"""The live view of `headgate top`: pages that are read again periodically, and keys."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from headgate.base.errors import HeadgateError
from headgate.base.text import visible
from headgate.cli.common.screen import FullScreen, ScreenLine
from headgate.cli.jobs.top_pages import PAGES, read, totals

if TYPE_CHECKING:
    from headgate.api.client import Client

_LEAVES = ("q", "Q", "ctrl-c")
_SCROLL = "j k PgUp PgDn, Tab next table"


class TopReading(NamedTuple):
    """What was read last, at which time of day, and why a later attempt has failed."""

    views: dict[str, Any]
    at: str
    trouble: str = ""


class TopPlace(NamedTuple):
    """What a user looks at: a page, and the number of its first line on the screen."""

    page: int
    first: int = 0


def watch(client: Client, interval_s: float, page: int) -> None:
    """Show pages on the terminal until a user leaves, `page` first.

    Errors of the first reading are raised, later ones are shown until one succeeds.
    """
    first = TopReading(read(client, PAGES[page].reads), _time_of_day())
    place = TopPlace(page)
    with FullScreen() as screen, suppress(EOFError, KeyboardInterrupt):
        reader = _Reader(client, interval_s, page, first, screen.wake)
        reader.start()
        while True:
            reading, (columns, rows) = reader.latest(), screen.size
            lines, room = page_lines(reading, place, columns), _room(reading, rows)
            place = place._replace(first=min(place.first, _last(lines, room)))
            screen.show(frame(reading, place, lines, rows))
            for key in screen.read_keys():
                if key in _LEAVES:
                    return
                if key == "ctrl-z":
                    screen.suspend()
                place = pressed(place, key, page_lines(reading, place, columns), room)
            reader.turn_to(place.page)


class _Reader(threading.Thread):
    """Reads what the present page shows, again and again, so that keys need not wait for it."""

    def __init__(
        self,
        client: Client,
        interval_s: float,
        page: int,
        first: TopReading,
        wake: Callable[[], None],
    ) -> None:
        """Read every `interval_s` seconds; `wake` is called after each reading."""
        super().__init__(daemon=True)  # a controller that hangs does not keep the program
        self._client, self._interval_s, self._wake = client, interval_s, wake
        self._page, self._reading = page, first
        self._turned = threading.Event()
        self._failure: Exception | None = None

    def latest(self) -> TopReading:
        """Return the last reading; raise the unforeseen error that has ended the thread."""
        if self._failure is not None:
            raise self._failure
        return self._reading

    def turn_to(self, page: int) -> None:
        """Read what this page shows from now on, and immediately if that is another page."""
        if page != self._page:
            self._page = page
            self._turned.set()

    def run(self) -> None:
        """Read until the program ends."""
        while self._failure is None:
            self._turned.wait(self._interval_s)
            self._turned.clear()
            try:
                found = read(self._client, PAGES[self._page].reads)
                self._reading = TopReading({**self._reading.views, **found}, _time_of_day())
            except HeadgateError as error:
                problem = error.problems[0].problem if error.problems else error.code
                self._reading = self._reading._replace(trouble=problem)
            except Exception as error:  # noqa: BLE001  # the main thread raises it
                self._failure = error
            self._wake()


def _time_of_day() -> str:
    return time.strftime("%H:%M:%S")


# --- what is on the screen -----------------------------------------------------------------------


def page_lines(reading: TopReading, place: TopPlace, columns: int) -> list[ScreenLine]:
    """Return all lines of a page; one line says so where what it shows was not read yet."""
    page = PAGES[place.page]
    if any(part not in reading.views for part in page.reads):
        return [ScreenLine("reading ...", "note")]
    return page.lines(reading.views, columns, True)


def frame(
    reading: TopReading, place: TopPlace, lines: Sequence[ScreenLine], rows: int
) -> list[ScreenLine]:
    """Return the lines of the screen: totals, a part of the page, and at the end the keys.

    Above the part of a table that is scrolled stays its heading.
    """
    head = [ScreenLine(f"{reading.at}  {totals(reading.views)}", "bar")]
    if reading.trouble:
        head.append(ScreenLine(f"{visible(reading.trouble)}; as of {reading.at}:", "alert"))
    room = _room(reading, rows)
    part = list(lines[place.first : place.first + room])
    headings = [line for line in lines[: place.first + 1] if line.style == "heading"]
    if room > 1 and place.first and headings:
        part[0] = headings[-1]
    blank = [ScreenLine("")] * (room - len(part))
    return [*head, *part, *blank, ScreenLine(_key_bar(place, len(lines), room), "bar")][:rows]


def _key_bar(place: TopPlace, count: int, room: int) -> str:
    names = [
        f"[{key} {page.name}]" if key == place.page + 1 else f" {key} {page.name} "
        for key, page in enumerate(PAGES, start=1)
    ]
    where = f"{place.first + 1}-{min(place.first + room, count)} of {count}: {_SCROLL}"
    return f"q quit  {''.join(names)}  {where if count > room else ''}".rstrip()


def _room(reading: TopReading, rows: int) -> int:
    """Return how many lines of a page a screen has, beside the totals, an error and the keys."""
    return max(rows - 2 - bool(reading.trouble), 0)


def _last(lines: Sequence[ScreenLine], room: int) -> int:
    """Return the greatest number of the first line shown."""
    return max(len(lines) - max(room, 1), 0)


def pressed(place: TopPlace, key: str, lines: Sequence[ScreenLine], room: int) -> TopPlace:
    """Return what is looked at after a key: another page, or another part of this one."""
    if key.isdigit() and 1 <= int(key) <= len(PAGES):
        return place if int(key) == place.page + 1 else TopPlace(int(key) - 1)
    step, last = max(room - 1, 1), _last(lines, room)
    tables = [number for number, line in enumerate(lines) if line.style == "heading"]
    moves = {
        "j": place.first + 1, "down": place.first + 1,
        "k": place.first - 1, "up": place.first - 1,
        " ": place.first + step, "page down": place.first + step,
        "b": place.first - step, "page up": place.first - step,
        "g": 0, "home": 0, "G": last, "end": last,
        "tab": next((table for table in tables if table > place.first), 0),
    }  # fmt: skip
    return place._replace(first=max(0, min(moves.get(key, place.first), last)))
