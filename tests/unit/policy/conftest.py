"""Makes ``policies`` importable, as a user's code is: from a directory on the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
