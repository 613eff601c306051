"""Pages of reports: self-contained HTML files, light or dark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path


def generator(command: str) -> str:
    """Return the `meta` element that marks a page of `headgate <command>`."""
    return f'<meta name="generator" content="headgate {command}">'


def is_ours(page: Path, command: str) -> bool:
    """Return whether a file is a page that this command wrote earlier."""
    try:
        return generator(command) in page.read_text(errors="replace")[:500]
    except OSError:
        return False


def document(title: str, body: str, *, command: str) -> str:
    """Return the whole page; `body` is HTML."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"{generator(command)}"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>"
        f"{body}</main></body></html>\n"
    )


def sections(of: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Return the navigation and the sections as HTML; `of` are (title, HTML) pairs."""
    links = "".join(f'<li><a href="#{_anchor(title)}">{escape(title)}</a></li>' for title, _ in of)
    body = "".join(
        f'<section id="{_anchor(title)}"><h2>{escape(title)}</h2>{content}</section>'
        for title, content in of
    )
    return f"<nav><ul>{links}</ul></nav>", body


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower())


def grid(
    head: Sequence[str], rows: Iterable[Sequence[str]], css_classes: Sequence[str] = ()
) -> str:
    """Return a table of cells in HTML; `css_classes` are those of its columns."""
    of = dict(enumerate(css_classes))

    def row(cells: Sequence[str], tag: str) -> str:
        return "".join(
            f'<{tag} class="{of[i]}">{c}</{tag}>' if of.get(i) else f"<{tag}>{c}</{tag}>"
            for i, c in enumerate(cells)
        )

    body = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in rows)
    return (
        f'<div class="wide"><table><thead><tr>{row(head, "th")}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def legend(items: Iterable[tuple[str, str]]) -> str:
    """Return a legend of (CSS class, text) pairs."""
    entries = "".join(
        f'<li><i class="{css_class}"></i>{escape(name)}</li>' for css_class, name in items
    )
    return f'<ul class="legend">{entries}</ul>'


_MARKS = {True: ("yes", "holds"), False: ("no", "does not hold"), None: ("none", "not run")}


def mark(holds: bool | None) -> str:
    """Return whether a claim holds, as HTML; None: its runs were not made."""
    css_class, words = _MARKS[holds]
    return f'<span class="mark {css_class}">{words}</span>'


_LIGHT = """
--bg:#ffffff;--fg:#1d2430;--soft:#5b6675;--line:#d7dce3;--idle:#eef1f5;--card:#f6f8fa;
--yes:#116b3a;--no:#a8261c;--none:#5b6675;--pub:#7a4b00;
--k0:#2f6fb7;--k1:#7fb2e5;--k2:#d9822b;--k3:#b5443c;--k4:#3f8f4f;--k5:#8b5fbf;--k6:#0f8b8d;
--k7:#4fb3b5;--k8:#94d2d3;--k9:#8a8f98;--lost:#1d2430;--s0:#2f6fb7;--s1:#a9c8ea;--s2:#d9822b;
--l0:#3f8f4f;--l1:#e2b33c;--l2:#c0492f;--mark:#1d2430;
"""
_DARK = """
--bg:#12161c;--fg:#e4e9f0;--soft:#9aa7b6;--line:#333c48;--idle:#1d242d;--card:#1a2028;
--yes:#5fd08c;--no:#ff8a7d;--none:#9aa7b6;--pub:#e6b873;
--k0:#5b9be0;--k1:#a5cdf3;--k2:#f0a35a;--k3:#e2766e;--k4:#6cc17d;--k5:#b592e3;--k6:#35b4b6;
--k7:#78cfd0;--k8:#b4e5e6;--k9:#a9afb8;--lost:#f2f5f9;--s0:#5b9be0;--s1:#3c587a;--s2:#f0a35a;
--l0:#55a868;--l1:#d6a52f;--l2:#d9634a;--mark:#f2f5f9;
"""
_KINDS = "".join(f".k{n}{{fill:var(--k{n})}}.b{n}{{background:var(--k{n})}}" for n in range(10))

_STYLE = f"""
:root{{color-scheme:light dark;{_LIGHT}}}
@media (prefers-color-scheme:dark){{:root{{{_DARK}}}}}
*{{box-sizing:border-box}}
body{{margin:0;background:var(--bg);color:var(--fg);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}}
main{{max-width:1080px;margin:0 auto;padding:20px 16px 60px}}
h1{{font-size:1.7em;line-height:1.2;margin:.4em 0}}
h2{{font-size:1.3em;margin:2em 0 .5em;padding-bottom:.2em;border-bottom:1px solid var(--line)}}
h3{{font-size:1.05em;margin:1.6em 0 .4em}} h4{{font-size:.95em;margin:1.1em 0 .2em}}
p{{max-width:75ch;margin:.5em 0}} a{{color:inherit}}
nav ul,.legend{{list-style:none;margin:.6em 0;padding:0;display:flex;flex-wrap:wrap;gap:.2em 1.1em}}
.legend li{{display:flex;align-items:center;gap:.4em;font-size:.87em;color:var(--soft)}}
.legend i{{width:13px;height:13px;border-radius:3px;display:inline-block}}
.wide,.chart{{overflow-x:auto}} .chart svg{{width:100%;min-width:620px;height:auto;display:block}}
table{{border-collapse:collapse;font-size:.88em;font-variant-numeric:tabular-nums;width:100%}}
th,td{{text-align:left;vertical-align:top;padding:.35em .7em .35em 0;
border-bottom:1px solid var(--line)}}
td{{white-space:nowrap}} td.long,td.numbers{{white-space:normal}}
td.long{{min-width:17em}} td.numbers{{min-width:11em}}
th{{color:var(--soft);font-weight:600}}
.aside{{color:var(--soft);font-size:.92em}} .published{{color:var(--pub)}}
.published::before{{content:"paper "}}
.mark{{font-weight:600;white-space:nowrap}} .mark.yes{{color:var(--yes)}}
.mark.no{{color:var(--no)}}
.mark.none{{color:var(--none)}} .mark.yes::before{{content:"\\2713\\a0"}}
.mark.no::before{{content:"\\2717\\a0"}} .mark.none::before{{content:"\\2013\\a0"}}
details{{margin:.6em 0}} summary{{cursor:pointer;font-weight:600}}
svg text{{fill:var(--fg);font-size:12.5px}} svg .small{{font-size:10.5px;fill:var(--soft)}}
svg .end{{text-anchor:end}} svg .middle{{text-anchor:middle}} svg text.inside{{fill:#fff}}
svg text.l1t{{fill:#1d2430}}
.grid{{stroke:var(--line);stroke-width:.7}} .axis{{stroke:var(--soft)}} .idle{{fill:var(--idle)}}
.lost{{fill:var(--lost)}} .blost{{background:var(--lost)}} {_KINDS}
.s0{{fill:var(--s0)}} .s1{{fill:var(--s1)}} .s2{{fill:var(--s2)}} .bs0{{background:var(--s0)}}
.bs1{{background:var(--s1)}} .bs2{{background:var(--s2)}} .l0{{fill:var(--l0)}}
.l1{{fill:var(--l1)}} .l2{{fill:var(--l2)}}
.bl0{{background:var(--l0)}} .bl1{{background:var(--l1)}} .bl2{{background:var(--l2)}}
.ideal-share,.ideal-alone{{stroke:var(--mark);stroke-width:2}} .ideal-alone{{stroke-dasharray:2 2}}
.legend .bshare,.legend .balone{{height:0;border-top:2px solid var(--mark);border-radius:0}}
.legend .balone{{border-top-style:dotted}}
@media (max-width:700px){{.claims thead{{display:none}}
.claims td{{display:block;border:0;padding:.1em 0}}
.claims td.mine{{border-bottom:1px solid var(--line);padding-bottom:.6em;margin-bottom:.6em}}
.claims td.theirs::before{{content:"published: ";color:var(--soft)}}
.claims td.mine::before{{content:"ours: ";color:var(--soft)}}}}
@media print{{:root{{{_LIGHT}}}main{{max-width:none;padding:0}}nav{{display:none}}
*{{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
.wide,.chart{{overflow:visible}}.chart,tr,h3,h4{{break-inside:avoid}}h2,h3,h4{{break-after:avoid}}
.chart svg{{min-width:0}}td{{white-space:normal}}body{{font-size:11px}}}}
"""
