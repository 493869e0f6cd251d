"""Is what a release publishes whole, small, and without stray files?

python .ci/check_package.py dist
"""

import sys
import tarfile
import zipfile
from email.parser import BytesParser
from pathlib import Path, PurePosixPath

LARGEST = 1_000_000  # bytes of a wheel

WHOLE = ("benchmarks", "docs", "examples", "tests", "trjmcmc")  # folders of an sdist
STRAY = (".pyc", ".so", ".ckpt", ".trj", ".orig", ".rej")

STATED = ("Name", "Version", "License-Expression", "Requires-Python", "Description-Content-Type")


def check(folder: Path) -> list[str]:
    """What is wrong, in words; prints the sizes."""
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    wrong = []
    with zipfile.ZipFile(wheel) as file:
        names = [PurePosixPath(name) for name in file.namelist()]
        (metadata,) = (n for n in names if n.match("*.dist-info/METADATA"))
        stated = BytesParser().parsebytes(file.read(str(metadata)))
    tops = {name.parts[0] for name in names}
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB, {len(names)} files")
    wrong += [f"the wheel has no {key}" for key in STATED if not stated[key]]
    wrong += [f"the wheel holds {top}" for top in tops if not top.startswith("trjmcmc")]
    if PurePosixPath("trjmcmc/py.typed") not in names:
        wrong.append("the wheel has no trjmcmc/py.typed")
    if wheel.stat().st_size > LARGEST:
        wrong.append(f"the wheel has more than {LARGEST / 1e6} MB")
    with tarfile.open(source) as file:
        inside = [PurePosixPath(*PurePosixPath(n).parts[1:]) for n in file.getnames()]
    print(f"{source.name}: {source.stat().st_size / 1e6:.2f} MB, {len(inside)} files")
    wrong += [f"the sdist holds {name}" for name in inside if name.suffix in STRAY]
    root = Path(__file__).parents[1]
    for top in WHOLE:
        there = {p.relative_to(root).as_posix() for p in (root / top).rglob("*.py")}
        missing = sorted(there - {name.as_posix() for name in inside})
        wrong += [f"the sdist lacks {missing[:3]}"] if missing else []
    return wrong


if __name__ == "__main__":
    found = check(Path(sys.argv[1]))
    raise SystemExit("\n".join(found) if found else 0)
