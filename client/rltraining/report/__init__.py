"""`rltrain report`: a run as one page. `sources` finds what is known of it, `figures` chooses the curves that `svg` draws,
`facts` and `configuration` put the rest into words, `page` fills the template, `command` writes the file."""
