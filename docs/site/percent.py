"""Scripts of the gallery as notebooks: cells between the lines `# %%`."""

import jupytext


def read(text):
    """A notebook in Python, for the site to execute."""
    notebook = jupytext.reads(text, fmt="py:percent")
    notebook.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    notebook.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
    return notebook
