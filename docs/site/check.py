"""Is the site whole in itself? Every link and anchor leads somewhere, nothing comes from elsewhere.

python docs/site/check.py build/site
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

HEAVIEST = 2_000_000  # bytes of a page with all that it loads

LOADED = {"script": "src", "img": "src", "link": "href", "source": "src", "iframe": "src"}

UNLOADED = {"index", "search", "genindex", "next", "prev", "canonical", "copyright", "author"}


class Page(HTMLParser):
    """What a page links to, what it loads, and its anchors."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {k: v or "" for k, v in attrs}
        self.anchors |= {given[k] for k in ("id", "name") if k in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in LOADED and LOADED[tag] in given and given.get("rel", "") not in UNLOADED:
            self.loads.append(given[LOADED[tag]])


def check(site: Path) -> list[str]:
    """What is wrong, in words; prints the number of pages and the heaviest."""
    pages = {path.resolve(): Page(path) for path in sorted(site.rglob("*.html"))}
    wrong, weights = [], {}
    for path, page in pages.items():
        name, weight = path.relative_to(site.resolve()), path.stat().st_size
        for address in page.links + page.loads:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                if address in page.loads and parts.scheme != "data":
                    wrong.append(f"{name} loads {address}")
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not there.is_file():
                wrong.append(f"{name}: {address} leads nowhere")
            elif there in pages and unquote(parts.fragment) not in {"", *pages[there].anchors}:
                wrong.append(f"{name}: {address} has no such anchor")
            if address in page.loads and there.is_file():
                weight += there.stat().st_size
        weights[name] = weight
    heaviest = max(weights, key=lambda name: weights[name])
    links = sum(len(page.links) for page in pages.values())
    print(f"{len(pages)} pages, {links} links; {heaviest} loads {weights[heaviest] / 1e6:.2f} MB")
    wrong += [f"{n} loads {w / 1e6:.1f} MB" for n, w in weights.items() if w > HEAVIEST]
    return wrong


if __name__ == "__main__":
    found = check(Path(sys.argv[1]))
    raise SystemExit("\n".join(found) if found else 0)
