"""The law of words: standard terms in code, comments, messages, tests and documents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("src/headgate", "tests", "docs", "bench", "README.md", "ARCHITECTURE.md")
SUFFIXES = {".py", ".pyi", ".cpp", ".hpp", ".md"}

# What is not written, and the term to write instead; docs/glossary.md defines the terms. Words are
# whole words or parts of an identifier (`_told`, `is_told_`); the words of a phrase may stand on
# two lines.
BANNED = {
    r"told": "reported, given, shown, passed",
    r"tell|tells|telling": "report, return, show, distinguish",
    r"whoever|whomever": "any process, the caller, the user who",
    r"nobody|nobody's|no-one": "no process, no task, no user",
    r"somebody|somebody's|someone|someone's": "a user, a process, another thread",
    r"anybody|anybody's|anyone|anyone's": "any user, any process",
    r"everybody|everybody's|everyone|everyone's": "all users, all jobs",
    r"cut short|cuts short|cutting short": "preempted, preempts",
    r"cuts? ([\w']+ ){1,3}short|cutting ([\w']+ ){1,3}short": "preempts",
    r"due(?! to)": "eligible, pending, needed, expired",
    r"dice": "rng, random draw",
    r"anew": "again, rebuilt, new",
    r"at once": "immediately, at the same time, together",
    r"wish|wishes": "command, request, candidate",
    r"as it is|as they are": "unchanged, current",
    r"word of": "report of",
    r"go on|goes on|going on|went on": "continue, proceed",
    r"is said|are said": "is reported",
    r"deal|deals|dealt|dealing": "allocate, allocation",
    r"bid|bids|bidding": "candidate",
    r"scene|scenes": "the inputs of a round",
    r"door": "submission check, API",
    r"story|stories": "history",
    r"stranger|strangers": "job that the policy does not support",
    r"for ever": "forever, without limit",
    r"mend|mends|mended": "fix, repair",
    r"lets? go of": "close, release",
    r"rightly": "correctly",
    r"silly": "absurd, invalid",
    r"stood": "was, were stored",
}

# Terms of the min-cost flow literature, where that is the subject.
_FLOW = ("src/headgate/flow", "src/headgate/policies/flow", "tests/flow", "docs/flow-core.md")
BANNED_IN = {
    r"way|ways": ("path, augmenting path, direction", _FLOW),
    r"hole|holes": ("deficit", _FLOW),
}

# Occurrences that stay, by file and words: how many, and why. A new one needs a line here.
ALLOWED: dict[tuple[str, str], tuple[int, str]] = {
    ("src/headgate/live/node/split.py", "tell"): (1, "a method of Python's files"),
    ("src/headgate/live/base/account.py", "nobody"): (1, "a user of every Unix"),
    ("tests/live/accounts.py", "nobody"): (1, "a user of every Unix"),
    ("tests/live/controller/test_submission.py", "nobody"): (1, "a user of every Unix"),
    ("tests/law/test_words.py", "*"): (0, "the list itself"),
}

_GAP = r"[\s_]+(?:(?:#|//|\*)\s*)?"


def _pattern(words: str) -> re.Pattern[str]:
    spaced = words.replace("(?! to)", "(?!\\s+to)").replace(" ", _GAP)
    return re.compile(rf"(?<![A-Za-z])(?:{spaced})(?![A-Za-z'])", re.IGNORECASE)


_PATTERNS = {_pattern(words): instead for words, instead in BANNED.items()}
_PATTERNS_IN = {_pattern(words): found for words, found in BANNED_IN.items()}
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def violations(name: str, text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line, words found, what to write instead) for each banned word of a text."""
    text = _HUMP.sub("_", text)
    for pattern, instead in _PATTERNS.items():
        for match in pattern.finditer(text):
            yield text.count("\n", 0, match.start()) + 1, " ".join(match[0].split()), instead
    for pattern, (instead, folders) in _PATTERNS_IN.items():
        for match in pattern.finditer(text) if name.startswith(folders) else ():
            yield text.count("\n", 0, match.start()) + 1, " ".join(match[0].split()), instead


def _files() -> Iterator[Path]:
    for top in FOLDERS:
        path = ROOT / top
        for found in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if found.suffix in SUFFIXES and "__pycache__" not in found.parts:
                yield found


def test_every_word_is_a_standard_term() -> None:
    counts: dict[tuple[str, str], int] = {}
    found = []
    for path in _files():
        name = str(path.relative_to(ROOT))
        if (name, "*") in ALLOWED:
            continue
        for line, words, instead in violations(name, path.read_text()):
            key = (name, words.lower())
            counts[key] = counts.get(key, 0) + 1
            if key not in ALLOWED:
                found.append(f"{name}:{line}: '{words}'; write: {instead}")
    assert found == []
    expected = {key: count for key, (count, _) in ALLOWED.items() if key[1] != "*"}
    assert {key: count for key, count in counts.items() if key in ALLOWED} == expected


@pytest.mark.parametrize(
    "text",
    [
        "it is told so", "_told(", "is_told_", "LineTold", "what\n    # at\n    # once", "at_once",
        "runs are cut\nshort", "it cuts others' runs short", "a job is due", "Nobody waits",
    ],
)  # fmt: skip
def test_a_banned_word_is_found(text: str) -> None:
    assert list(violations("src/headgate/x.py", text))


@pytest.mark.parametrize("text", ["an ideal", "indoors", "due to a fault", "histories", "tellers"])
def test_other_words_pass(text: str) -> None:
    assert list(violations("src/headgate/x.py", text)) == []
