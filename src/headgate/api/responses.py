"""Answers as JSON: text of jobs and users is harmless wherever it is shown."""

from __future__ import annotations

from typing import Any

from fastapi.responses import JSONResponse

from headgate.base.text import visible_values


class EscapedJSON(JSONResponse):
    """JSON in which text of jobs and users is harmless wherever it is shown."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return super().render(visible_values(content))
