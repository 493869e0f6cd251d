"""The picture of the house, docs/house.svg: rooms on their floors, and who imports from whom.

python docs/site/house.py

Rooms and floors are those of the table in docs/internals.md, arrows those of the source. An arrow
that follows from others is left out: who imports from a room may import from all that it rests on.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.imports import arrows, graph_of, room  # noqa: E402

WIDE, HIGH, GAP = 92, 26, 18  # of a room, and between rooms, in pixels
FLOOR = 62  # from floor to floor
LEFT = 34  # for the floors' numbers
SWEEPS = 20  # over the floors, each room moved towards those that it rests on


def table(text: str) -> dict[str, int]:
    """The floor of each room by the table of the manual."""
    found: dict[str, int] = {}
    for floor, names in re.findall(r"^\| (\d+) \| (.+?) \|", text, re.MULTILINE):
        found |= dict.fromkeys(re.findall(r"`(?:trjmcmc/)?(\w+)/?`", names), int(floor))
    return found


def essential(graph: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Arrows that do not follow from others."""

    def below(name: str) -> set[str]:
        return graph[name].union(*(below(other) for other in graph[name]))

    return sorted(
        (name, other)
        for name in graph
        for other in graph[name]
        if not any(other in below(third) for third in graph[name] - {other})
    )


def places(floor: dict[str, int], links: list[tuple[str, str]]) -> dict[str, float]:
    """Where each room stands on its floor: near the rooms that it has arrows with."""
    rows: dict[int, list[str]] = {}
    for name, f in floor.items():
        rows.setdefault(f, []).append(name)
    wide = max(map(len, rows.values()))
    place = {n: i + (wide - len(row)) / 2 for row in rows.values() for i, n in enumerate(row)}
    for _ in range(SWEEPS):
        for row in rows.values():
            wish = {}
            for name in row:
                near = [b if a == name else a for a, b in links if name in (a, b)]
                wish[name] = sum(place[n] for n in near) / len(near) if near else place[name]
            row.sort(key=wish.__getitem__)
            middle = sum(wish.values()) / len(row)
            first = min(max(middle - (len(row) - 1) / 2, 0), wide - len(row))
            place |= {name: first + i for i, name in enumerate(row)}
    return place


def picture(root: Path) -> str:
    """The picture as SVG, a function of the sources and of the table."""
    floor = table((root / "docs" / "internals.md").read_text())
    pairs = [(room(a), room(b)) for a, b, _ in arrows(root / "trjmcmc")]
    graph = graph_of([(a, b) for a, b in pairs if a in floor and b in floor], floor)
    links = essential(graph)
    place, top = places(floor, links), max(floor.values())
    x = {name: LEFT + GAP + place[name] * (WIDE + GAP) + WIDE / 2 for name in floor}
    y = {name: GAP + (top - floor[name]) * FLOOR for name in floor}  # upper edge
    width, height = max(x.values()) + WIDE / 2 + GAP, top * FLOOR
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}"'
        ' font-family="sans-serif" font-size="12" text-anchor="middle">',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>',
    ]
    for f in range(1, top + 1):
        line = GAP + (top - f) * FLOOR + HIGH / 2
        parts.append(f'<text x="{GAP}" y="{line + 4:.0f}" fill="#888">{f}</text>')
    for a, b in links:
        begin, end = y[a] + HIGH, y[b]
        bend = min(FLOOR, end - begin) / 2
        parts.append(
            f'<path d="M{x[a]:.0f} {begin:.0f}C{x[a]:.0f} {begin + bend:.0f} {x[b]:.0f} '
            f'{end - bend:.0f} {x[b]:.0f} {end:.0f}" fill="none" stroke="#4477aa" '
            'stroke-opacity=".55"/>'
        )
    for name in floor:
        parts.append(
            f'<rect x="{x[name] - WIDE / 2:.0f}" y="{y[name]:.0f}" width="{WIDE}" '
            f'height="{HIGH}" rx="4" fill="#eef3f8" stroke="#4477aa"/>'
            f'<text x="{x[name]:.0f}" y="{y[name] + HIGH / 2 + 4:.0f}" fill="#222">{name}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    (ROOT / "docs" / "house.svg").write_text(picture(ROOT))
