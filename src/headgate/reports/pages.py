"""Pages of reports: self-contained HTML files, light or dark, for wide and narrow screens.

What is wider than the page scrolls in a box of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from headgate.reports import colours


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
    hatches = colours.hatches(body)
    if hatches:
        hatches = f'<svg class="hatches" aria-hidden="true">{hatches}</svg>'
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"{generator(command)}"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>"
        f"{hatches}{body}</main></body></html>\n"
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


_UNIT = r"(?:%|&plusmn;|±|\||to|[A-Za-zµ]{1,5}(?:/[A-Za-z]{1,5})?)"
_NUMBER = r"\(?[-+]?[0-9][0-9.,]*"
_FIGURES = re.compile(rf"{_NUMBER}(?: ?(?:{_UNIT}|{_NUMBER})\)?)*")


def _is_numeric(cells: Iterable[str]) -> bool:
    """Return whether all cells of a column are figures with units, or `-` or empty."""
    texts = [re.sub(r"<[^>]*>", " ", cell).strip() for cell in cells]
    figures = [" ".join(text.split()) for text in texts if text not in ("", "-")]
    return any(texts) and all(_FIGURES.fullmatch(text) for text in figures)


def grid(
    head: Sequence[str], rows: Iterable[Sequence[str]], css_classes: Sequence[str] = ()
) -> str:
    """Return a table of cells in HTML; `css_classes` are those of its columns.

    Columns of figures without a class are aligned to the right, except the first, which names rows.
    """
    made = [list(row) for row in rows]
    of = dict(enumerate(css_classes))
    for number, column in enumerate(zip(*made, strict=False)):
        if number and not of.get(number) and _is_numeric(column):
            of[number] = "n"

    def row(cells: Sequence[str], tag: str) -> str:
        return "".join(
            f'<{tag} class="{of[i]}">{c}</{tag}>' if of.get(i) else f"<{tag}>{c}</{tag}>"
            for i, c in enumerate(cells)
        )

    body = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in made)
    return (
        f'<div class="wide" tabindex="0"><table><thead><tr>{row(head, "th")}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def legend(items: Iterable[tuple[str, str]], jobs: Iterable[tuple[str, str]] = ()) -> str:
    """Return a legend of (job, text) pairs, in the looks of these jobs, and (CSS class, text)."""
    looks = (
        (f'<svg viewBox="0 0 9 9" aria-hidden="true">{_swatch(job)}</svg>', words)
        for job, words in jobs
    )
    classes = ((f'<i class="{css_class}"></i>', words) for css_class, words in items)
    entries = "".join(f"<li>{sign}{escape(words)}</li>" for sign, words in (*looks, *classes))
    return f'<ul class="legend" aria-label="legend">{entries}</ul>'


def _swatch(job: str) -> str:
    return f'<rect width="9" height="9" fill="{colours.fill(job)}"/>'


_MARKS = {True: ("yes", "holds"), False: ("no", "does not hold"), None: ("none", "not run")}


def mark(holds: bool | None) -> str:
    """Return whether a claim holds, as HTML; None: its runs were not made."""
    css_class, words = _MARKS[holds]
    return f'<span class="mark {css_class}">{words}</span>'


_LIGHT = """
--bg:#ffffff;--fg:#1d2430;--soft:#5b6675;--line:#d7dce3;--idle:#eef1f5;--card:#f6f8fa;
--yes:#116b3a;--no:#a8261c;--none:#5b6675;
"""
_DARK = """
--bg:#12161c;--fg:#e4e9f0;--soft:#9aa7b6;--line:#333c48;--idle:#1d242d;--card:#1a2028;
--yes:#5fd08c;--no:#ff8a7d;--none:#9aa7b6;
"""
SCHEMES = (_LIGHT, _DARK)
"""The colours of light and dark pages, as variables of CSS."""

_STYLE = f"""
:root{{color-scheme:light dark;{_LIGHT}}}
@media (prefers-color-scheme:dark){{:root{{{_DARK}}}}}
*{{box-sizing:border-box}}
body{{margin:0;background:var(--bg);color:var(--fg);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}}
main{{max-width:1160px;margin:0 auto;padding:20px 16px 60px}}
h1{{font-size:1.7em;line-height:1.2;margin:.4em 0}}
h2{{font-size:1.3em;margin:2em 0 .5em;padding-bottom:.2em;border-bottom:1px solid var(--line)}}
h3{{font-size:1.05em;margin:1.6em 0 .4em}} h4{{font-size:.95em;margin:1.1em 0 .2em}}
p{{max-width:75ch;margin:.5em 0}} a{{color:inherit}}
nav ul,.legend{{list-style:none;margin:.6em 0;padding:0;display:flex;flex-wrap:wrap;gap:.2em 1.1em}}
.legend li{{display:flex;align-items:center;gap:.4em;font-size:.87em;color:var(--soft)}}
.legend i,.legend svg{{flex:none;width:13px;height:13px;border-radius:3px;display:inline-block}}
h1,h2,h3,h4,p,li,td.long,td.numbers{{overflow-wrap:anywhere}}
.wide,.chart{{overflow-x:auto}} .chart svg{{width:100%;min-width:760px;height:auto;display:block}}
.chart.fits svg{{min-width:440px;max-width:680px}}
table{{border-collapse:collapse;font-size:.88em;font-variant-numeric:tabular-nums;width:100%}}
th,td{{text-align:left;vertical-align:top;padding:.35em .7em .35em 0;
border-bottom:1px solid var(--line)}}
.wide td:first-child,.wide th:first-child{{position:sticky;left:0;background:var(--bg)}}
td{{white-space:nowrap}} td.long,td.numbers{{white-space:normal}}
td.long{{min-width:17em}} td.numbers{{min-width:11em}}
th.n,td.n{{text-align:right}} .n+:not(.n){{padding-left:1.2em}}
td.n:last-child,th.n:last-child{{padding-right:0}}
th{{color:var(--soft);font-weight:600;vertical-align:bottom}}
.aside{{color:var(--soft);font-size:.92em}}
.mark{{font-weight:600;white-space:nowrap}} .mark.yes{{color:var(--yes)}}
.mark.no{{color:var(--no)}}
.mark.none{{color:var(--none)}} .mark.yes::before{{content:"\\2713\\a0"}}
.mark.no::before{{content:"\\2717\\a0"}} .mark.none::before{{content:"\\2013\\a0"}}
details{{margin:.6em 0}} summary{{cursor:pointer;font-weight:600}}
svg text{{fill:var(--fg);font-size:12.5px}} svg .small{{font-size:10.5px;fill:var(--soft)}}
svg .end{{text-anchor:end}} svg .middle{{text-anchor:middle}} svg text.inside{{font-size:10.5px}}
svg .named{{paint-order:stroke;stroke-width:3px;font-size:10.5px;pointer-events:none}}
.hatches{{position:absolute;width:0;height:0}}
.grid{{stroke:var(--line);stroke-width:.7}} .axis{{stroke:var(--soft)}} .idle{{fill:var(--idle)}}
.bidle{{background:var(--idle);border:1px solid var(--line)}}
.lost{{fill:var(--fg)}} .blost{{background:var(--fg)}} {colours.series_style()}
polyline{{fill:none;stroke-width:2}} polyline.best{{stroke-width:3.5}}
.reserved{{stroke:var(--fg);stroke-width:1.4;stroke-dasharray:3 2}}
.breserved{{border:1.5px dashed var(--fg)}}
.ideal-share,.ideal-alone{{stroke:var(--fg);stroke-width:2}} .ideal-alone{{stroke-dasharray:2 2}}
.legend .bshare,.legend .balone{{height:0;border-top:2px solid var(--fg);border-radius:0}}
.legend .balone{{border-top-style:dotted}}
@media (max-width:700px){{.wide td:first-child{{white-space:normal;min-width:8.5em;max-width:42vw}}
.claims .wide td:first-child{{min-width:0;max-width:none}} .claims thead{{display:none}}
.claims td{{display:block;border:0;padding:.1em 0}}
.claims td.mine{{border-bottom:1px solid var(--line);padding-bottom:.6em;margin-bottom:.6em}}
.claims td.theirs::before{{content:"published: ";color:var(--soft)}}
.claims td.mine::before{{content:"ours: ";color:var(--soft)}}}}
@media print{{:root{{{_LIGHT}}}main{{max-width:none;padding:0}}nav{{display:none}}
*{{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
.wide,.chart{{overflow:visible}}.wide td:first-child{{position:static}}
.chart,tr,h3,h4{{break-inside:avoid}}h2,h3,h4{{break-after:avoid}}
.chart svg{{min-width:0}}td{{white-space:normal}}body{{font-size:11px}}}}
"""
