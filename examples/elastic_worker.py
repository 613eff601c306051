"""A worker of which any number may run: each counts words of files until none is left.

It takes the files of DIRECTORY/texts, one after the other, and writes their counts into
DIRECTORY/counts. While a worker has a file it holds a lock on it, which goes with its process:
one that is stopped at any time leaves its file to the others. Locks hold between nodes on NFS
version 4 and on most cluster file systems.
"""

import fcntl
import os
import sys
import time
from pathlib import Path

texts, counts = Path(sys.argv[1]) / "texts", Path(sys.argv[1]) / "counts"
counts.mkdir(exist_ok=True)


def count(text: Path) -> bool:
    """Count the words of a file, unless another worker has it; return whether it was done here."""
    try:
        with text.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not text.exists():
                return False  # another worker has just finished with it
            time.sleep(0.2)  # a real worker computes here
            draft = counts / f".{text.name}"
            draft.write_text(f"{len(file.read().split())}\n")
            draft.replace(counts / text.name)
            text.unlink()
    except (BlockingIOError, FileNotFoundError):
        return False
    return True


files = 0
while left := sorted(texts.iterdir()):
    done = sum(map(count, left))
    files += done
    if not done:
        time.sleep(0.5)  # others have the last ones: they may leave them
print(f"worker {os.environ['HEADGATE_INDEX']} has counted the words of {files} files")
