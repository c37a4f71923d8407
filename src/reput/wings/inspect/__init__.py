"""Examine a store: inspection, figures, the life of a message, differences between stores."""

from typing import TYPE_CHECKING

from reput.base.lazy import face

if TYPE_CHECKING:
    from reput.wings.inspect.measuring.figures import covered_log as covered_log
else:
    __getattr__, __dir__ = face(__name__)
