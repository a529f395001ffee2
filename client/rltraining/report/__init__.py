"""Implements `rltrain report`, which writes a run as one page. `sources` reads the run, `figures`
selects the curves that `svg` draws, `facts` and `configuration` format the rest, `page` fills the
template, and `command` writes the file."""
