"""Scripts of the gallery as notebooks: cells between the lines `# %%`, with outputs of stored runs.

python docs/site/percent.py [NAME ...]

runs the scripts named, or those whose code is no longer that of the stored notebook, and stores
them in docs/gallery/notebooks/. The site shows these, and executes nothing.
"""

import copy
import os
import re
import sys
from pathlib import Path

import jupytext
import nbformat

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "docs" / "gallery"
STORED = SCRIPTS / "notebooks"
UNWANTED = re.compile(r"\bnan\b|warning", re.IGNORECASE)  # in what a page prints
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}


def parse(text):
    """A notebook without outputs."""
    notebook = jupytext.reads(text, fmt="py:percent")
    language = {"name": "python", "pygments_lexer": "ipython3"}
    notebook.metadata = {"kernelspec": KERNEL, "language_info": language}
    for i, cell in enumerate(notebook.cells):
        cell.metadata, cell.id = {}, f"cell-{i}"
    return notebook


def code(notebook):
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def with_outputs(notebook):
    """Fill in the outputs of the stored run of the same code; its name, or None."""
    for path in sorted(STORED.glob("*.ipynb")):
        stored = nbformat.read(path, 4)
        if code(stored) == code(notebook):
            outputs = (cell.outputs for cell in stored.cells if cell.cell_type == "code")
            for cell in notebook.cells:
                if cell.cell_type == "code":
                    cell.outputs = next(outputs)
            return path.stem
    return None


def read(text):
    """The page of a script: outputs of its stored run, and links that download it."""
    notebook = parse(text)
    name = with_outputs(notebook)
    links = "No run of this script is stored: `make gallery` runs it."
    if name:
        links = f"Download: {{download}}`notebooks/{name}.ipynb`, {{download}}`{name}.py`."
    notebook.cells[0].source += f"\n\n{links}"
    return notebook


def execute(notebook):
    """Fill in outputs; an error if a cell fails, or prints a warning or NaN."""
    import nbclient

    os.environ["PYTHONPATH"] = str(ROOT)
    os.environ.setdefault("PYTHONWARNINGS", "ignore:IProgress not found")  # by tqdm
    run = copy.deepcopy(notebook)  # a run adds counts and the kernel's description
    nbclient.NotebookClient(run, timeout=1200).execute()
    for cell, done in zip(notebook.cells, run.cells, strict=True):
        for output in done.get("outputs", ()):
            if UNWANTED.search(output.get("text", "")) or output.get("name") == "stderr":
                raise ValueError(output["text"])
        if cell.cell_type == "code":
            cell.outputs = done.outputs


def main(names):
    STORED.mkdir(exist_ok=True)
    failed = []
    for path in sorted(SCRIPTS.glob("*.py")):
        notebook = parse(path.read_text())
        known = with_outputs(notebook) == path.stem
        if path.stem in names or not (names or known):
            print(path.stem, flush=True)
            try:
                execute(notebook)
            except Exception as error:
                failed.append(f"{path.stem}: {error}")
                continue
        elif not known:
            continue
        nbformat.write(notebook, STORED / f"{path.stem}.ipynb")
    return failed


if __name__ == "__main__":
    raise SystemExit("\n\n".join(main(sys.argv[1:])) or 0)
