"""Random invalid requests, for every route that takes a name, a number or a text."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

import httpx
from hypothesis import strategies as st

from headgate.base.errors import MOST_PROBLEMS

Request = tuple[str, str, dict[str, str], bytes]  # method, path, query, body

NUMBERS = (
    *("0", "-1", "1", "2", "9" * 5000, "1" + "0" * 18, str(2**63), "-" + "9" * 5000, "1e3", "0x1"),
    *("", " ", "\u0663", "true", "nan", "None", "1.0", "1_0", "\0", "a\nb"),
)
TEXTS = (
    *("", "x", "/", "..", "\u00e4", "\0", "\x1b[31m", "a b", "x" * 5000, "{}", "%", "\U0001f600"),
    *("fs", "fs,alpha1=1", "fs,alpha1=nan", "fs,a=1,a=2", "n0", "queued", "default", "true"),
)
BODIES = (
    *(b"", b"\xff", b"{", b"[]", b"run: x", b"{run: x, resources: {gpus: 0}}", b"a: &a [*a]"),
    *(b"labels: {n0: [a, 7], '': b}", b"labels: {n0: a}", b"queues: [{name: a, queues: [{}]}]"),
    *(
        b"queues: [{name: a, guaranteed: {gpus: 1, x: .inf}}]",
        b"queues: [{name: new, limit: {gpus: 1}}]",
    ),
)
ROUTES = (  # method, path with a place for a name or a number, keys of numbers, keys of texts
    ("GET", "/jobs", ("cursor", "limit"), ("state", "user", "queue")),
    ("POST", "/jobs", (), ("dry_run",)),
    ("GET", "/jobs/{name}", (), ()),
    ("DELETE", "/jobs/{name}", (), ("dry_run",)),
    ("GET", "/jobs/{name}/tasks", ("cursor", "limit"), ()),
    ("GET", "/jobs/{name}/tasks/{number}", (), ()),
    ("GET", "/jobs/{name}/explanation", ("task",), ()),
    ("GET", "/jobs/{name}/logs", ("task", "attempt", "offset"), ()),
    ("GET", "/jobs/{name}/result", ("task",), ()),
    ("GET", "/plan", ("nodes",), ("policy", "like")),
    ("GET", "/datasets/{name}", (), ()),
    ("GET", "/datasets/{name}/shards", ("cursor", "limit"), ()),
    ("PUT", "/datasets/{name}/shards/{number}", ("replicas",), ()),
    ("POST", "/datasets/{name}/commit", ("shards",), ()),
    ("POST", "/datasets/{name}/abandon", (), ()),
    ("DELETE", "/datasets/{name}", (), ()),
    ("POST", "/nodes/{name}/labels", (), ("add", "remove", "dry_run")),
    ("PUT", "/labels", (), ("dry_run",)),
    ("PUT", "/queues", (), ("dry_run",)),
    ("POST", "/jobs/{name}/queue", (), ("name", "dry_run")),
)


@st.composite
def requests(draw: st.DrawFn, names: Sequence[str]) -> Request:
    """Draw a request; `names` are existing jobs and datasets."""
    method, path, numbers, texts = draw(st.sampled_from(ROUTES))
    query = {key: draw(st.sampled_from(NUMBERS)) for key in numbers if draw(st.booleans())}
    query |= {key: draw(st.sampled_from(TEXTS)) for key in texts if draw(st.booleans())}
    name = draw(st.sampled_from((*names, *TEXTS)))
    number = draw(st.sampled_from(NUMBERS))
    target = path.format(name=quote(name, safe=""), number=quote(number, safe=""))
    body = draw(st.sampled_from(BODIES)) if method in ("POST", "PUT") else b""
    return method, target, query, body


def checked(response: httpx.Response) -> None:
    """Assert that a response is a success, or a short error object that is not internal."""
    request = f"{response.request.method} {response.request.url}: {response.status_code}"
    ours = response.status_code >= 500 and response.json()["code"] not in (
        "unreachable",
        "disk_full",
    )
    assert not ours, f"{request} {response.text[:500]}"
    if response.is_error:
        body = response.json()
        assert set(body) == {"code", "problems"}, request
        assert 1 <= len(body["problems"]) <= MOST_PROBLEMS
        assert "Traceback" not in response.text
        assert "\\u001b[3" not in response.text.replace("\\u001b[31m", ""), "colours of a request"
        assert len(response.content) < 100_000
