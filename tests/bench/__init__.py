"""Every measured claim, as a command that prints a table: ``make bench``, or ``python -m tests.bench NAME...``."""
