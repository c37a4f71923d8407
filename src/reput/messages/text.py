"""Old place of `reput.text`."""

from reput.text import one_line as one_line
from reput.text import printable as printable
