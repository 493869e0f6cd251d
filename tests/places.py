"""Where the files are that tests read beside the package."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"
shared_only = pytest.mark.skipif(not SHARED.is_dir(), reason="reference answers are not here")
