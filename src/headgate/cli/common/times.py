"""Times on the screen: in the time zone of the user. Those of JSON are in UTC."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta

_IN_UTC = re.compile(r"(?:(\d{4}-\d\d-\d\d) at )?\b(\d\d:\d\d(?::\d\d)?) UTC")
_HALF_DAY = timedelta(hours=12)


def local_time(at: float) -> str:
    """Return a time, in seconds since the epoch, as `2026-08-01 at 11:30:00 CEST`."""
    return f"{datetime.fromtimestamp(at, UTC).astimezone():%Y-%m-%d at %H:%M:%S %Z}"


def in_local_time(text: str) -> str:
    """Return a text of the controller with its times, which are in UTC, in local time.

    A time without a date is less than half a day from now.
    """
    return _IN_UTC.sub(_local, text)


def _local(found: re.Match[str]) -> str:
    date, clock = found.groups()
    form = "%H:%M:%S" if clock.count(":") == 2 else "%H:%M"
    now = datetime.fromtimestamp(time.time(), UTC)
    try:
        day = datetime.strptime(date or f"{now:%Y-%m-%d}", "%Y-%m-%d").replace(tzinfo=UTC)
        moment = datetime.combine(day, datetime.strptime(clock, form).time(), UTC)
        if not date and abs(moment - now) > _HALF_DAY:
            moment += timedelta(days=1 if moment < now else -1)
        return moment.astimezone().strftime(f"%Y-%m-%d at {form} %Z" if date else f"{form} %Z")
    except (ValueError, OverflowError):
        return found[0]
