"""Programs that get notice before they are stopped, and what they write."""

from __future__ import annotations

from pathlib import Path

SAVES = r"""
def save(*_):
    seen.write("notice\n")
    time.sleep(save_s)
    seen.write("saved\n")
    raise SystemExit
signal.signal(signal.SIGTERM, save)
seen.write("begun\n")
time.sleep(600)
"""
IGNORES = r"""
signal.signal(signal.SIGTERM, lambda *_: seen.write("notice\n"))
seen.write("begun\n")
while True:
    time.sleep(0.1)
"""


def program(folder: Path, script: str, *, save_s: str = "1") -> Path:
    """Write a Python script that may append to the file `seen`, and save for `save_s` seconds."""
    path = folder / "program.py"
    path.write_text(
        "import signal, sys, time\n"
        f"seen, save_s = open({str(folder / 'seen')!r}, 'a', 1), {save_s}\n{script}"
    )
    return path


def seen(folder: Path) -> list[str]:
    """Return the words that runs of the script have written."""
    path = folder / "seen"
    return path.read_text().split() if path.exists() else []
