"""`python -m reput` is the `reput` command."""

import sys

from reput.cli.main import main

sys.exit(main())
