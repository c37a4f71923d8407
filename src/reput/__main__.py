"""Run the `reput` command as `python -m reput`."""

from reput.cli.main import start

start()
