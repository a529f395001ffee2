"""Commands that show whether a run can be trusted: `rltrain audit` and `rltrain chaos`."""
