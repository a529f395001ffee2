"""Programs that write files of the chart."""
