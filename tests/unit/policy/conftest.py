"""Makes ``policies`` importable from a directory on the path, like user code."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
