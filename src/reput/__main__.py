"""Run the `reput` command as `python -m reput`."""

from reput.cli import start

start()
