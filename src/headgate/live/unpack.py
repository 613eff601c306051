"""Unpacking of packages, as the user of the job: `python -I -S unpack.py ARCHIVE DIRECTORY`.

The script uses the standard library alone. Its user made the archive, and it has their rights only.
"""

from __future__ import annotations

import sys
import tarfile
from typing import Any


def main() -> None:
    """Unpack an archive into a directory."""
    archive, directory = sys.argv[1:]
    safely: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(archive) as found:
        found.extractall(directory, **safely)


if __name__ == "__main__":
    main()
