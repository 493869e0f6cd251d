"""What a build adds to its metadata: addresses, and the README with links that lead there."""

import runpy
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

ADDRESS = runpy.run_path(str(Path(__file__).with_name("address.py")))


class Addresses(MetadataHookInterface):
    """Called by the builder."""

    def update(self, metadata):
        address = ADDRESS["repository"]()
        text = (ADDRESS["ROOT"] / "README.md").read_text()
        text = ADDRESS["with_absolute_links"](text, address)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = ADDRESS["urls"](address)
