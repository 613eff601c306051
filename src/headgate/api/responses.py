"""JSON responses in which text of jobs and users is escaped."""

from __future__ import annotations

from typing import Any

from fastapi.responses import JSONResponse

from headgate.base.text import visible_values


class EscapedJSON(JSONResponse):
    """A JSON response whose texts contain no control characters; see `visible_values`."""

    def render(self, content: Any) -> bytes:
        """Return the body: JSON in UTF-8."""
        return super().render(visible_values(content))
