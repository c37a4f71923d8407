"""Run the `reput` command as `python -m reput`."""

import sys

from reput.cli.main import main

sys.exit(main())
