"""What came of several runs, side by side."""
