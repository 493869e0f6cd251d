"""One page of HTML that is whole in itself: tables, pictures and text, no script, no address."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

DOTS = 130  # an inch, of pictures

DIGITS = 4  # of numbers in tables

LARGE = 1e4  # from which a number is written out, up to a thousand million

WORDS = 28  # letters from which a cell of words may be broken into lines

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 62rem; color: #1b1b1b; background: #fff;
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.2; margin: .5rem 0; }
h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; padding-top: .5rem; border-top: 1px solid #ccc; }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1rem; }
nav a { color: #00598a; }
.wide { overflow-x: auto; margin: .75rem 0; max-width: 100%; }
table { border-collapse: collapse; font-size: .875rem; overflow-wrap: normal; }
caption { text-align: left; font-weight: 600; padding: .25rem 0; }
th, td { padding: .25rem .6rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid #e3e3e3; font-variant-numeric: tabular-nums; }
tbody th { text-align: left; font-weight: 500; position: sticky; left: 0; background: #fff; }
td.words { text-align: left; }
td.long { white-space: normal; min-width: 16rem; }
figure { margin: 1rem 0; }
figure img { display: block; max-width: 100%; height: auto; }
figcaption { font-size: .875rem; color: #444; }
pre { overflow-x: auto; max-width: 100%; padding: .75rem; background: #f4f4f4; font-size: .8125rem;
  overflow-wrap: normal; }
.doubt, .fine { padding: .6rem .8rem; margin: .6rem 0; border-left: .3rem solid; }
.doubt { border-color: #d55e00; background: #fdf1e9; }
.fine { border-color: #009e73; background: #ebf7f3; }
"""

RULES = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"  # nothing from elsewhere


def page(title: str, opening: Sequence[str], sections: Mapping[str, Sequence[str]]) -> str:
    """A page that opens without a network.

    Arguments:
        title: Plain text.
        opening: Pieces of HTML before the first section.
        sections: By heading, pieces of HTML; sections without any are left out.
    """
    shown = {heading: parts for heading, parts in sections.items() if parts}
    ids = {heading: heading.lower().replace(" ", "-") for heading in shown}
    links = "".join(f'<a href="#{ids[h]}">{escape(h)}</a>' for h in shown)
    body = "".join(
        f'<section id="{ids[h]}"><h2>{escape(h)}</h2>{"".join(parts)}</section>'
        for h, parts in shown.items()
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{RULES}">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n<nav>{links}</nav>\n{''.join(opening)}\n{body}\n"
        "</body>\n</html>\n"
    )


def table(frame: pd.DataFrame, caption: str = "", most: int | None = None) -> str:
    """A table that scrolls on its own where it is wider than the page.

    Arguments:
        frame: Numbers with four digits, words as they are; columns that hold nothing are left out.
        caption: Plain text.
        most: Rows to show; how many are left out is said.
    """
    kept = [c for c in frame if not frame[c].map(lambda x: x == "" or x != x).all()]
    shown = frame[kept] if most is None else frame[kept].head(most)
    left = len(frame) - len(shown)
    said = f"{caption}{f' ({left} more rows are not shown)' if left else ''}"
    names = [str(n or "") for n in shown.index.names]
    head = "".join(f'<th scope="col">{escape(str(n))}</th>' for n in (*names, *kept))
    rows = []
    for index, row in zip(shown.index, shown.itertuples(index=False), strict=True):
        labels = index if isinstance(index, tuple) else (index,)
        first = "".join(f'<th scope="row">{escape(str(x))}</th>' for x in labels)
        rows.append(f"<tr>{first}{''.join(_cell(x) for x in row)}</tr>")
    return (
        f'<div class="wide" tabindex="0"><table><caption>{escape(said)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _cell(value: Any) -> str:
    if isinstance(value, str):
        long = " long" if len(value) > WORDS else ""
        return f'<td class="words{long}">{escape(value)}</td>'
    if isinstance(value, float):
        large = LARGE <= abs(value) < 1e9
        return f"<td>{f'{value:,.0f}' if large else f'{value:.{DIGITS}g}'}</td>"
    return f"<td>{escape(str(value))}</td>"


def figure(drawn: Any, words: str) -> str:
    """A picture inside the page, as PNG; its figure is closed.

    Arguments:
        drawn: Axes, or an array of them.
        words: What it shows, read aloud in its place and printed below.
    """
    from matplotlib import pyplot as plt  # seconds to import, and only pictures need it

    whole, content = np.ravel(drawn)[0].figure, io.BytesIO()
    whole.savefig(content, format="png", dpi=DOTS, bbox_inches="tight", facecolor="white")
    plt.close(whole)
    data = base64.b64encode(content.getvalue()).decode()
    said = escape(words)
    return (
        f'<figure><img alt="{said}" src="data:image/png;base64,{data}">'
        f"<figcaption>{said}</figcaption></figure>"
    )


def prose(text: str, kind: str = "") -> str:
    """A paragraph of plain text; ``kind`` is ``doubt``, ``fine`` or nothing."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def listing(text: str) -> str:
    """Plain text, line by line.

    Example:
        >>> listing("a < b")
        '<pre>a &lt; b</pre>'
    """
    return f"<pre>{escape(text)}</pre>"
