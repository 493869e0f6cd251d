"""What the import of the package costs: nothing that only some calls need."""

import subprocess
import sys
from pathlib import Path

SLOW = ("arviz", "emcee", "matplotlib", "scipy.optimize", "scipy.special", "scipy.stats", "xarray")


def test_import_leaves_slow_packages_alone():
    # beside torch they took three of five seconds; each is imported by the calls that need it
    code = f"import sys, trjmcmc; print([m for m in {SLOW} if m in sys.modules])"
    root = Path(__file__).parent.parent
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
