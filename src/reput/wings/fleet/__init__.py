"""Watch many stores: state, lag, figures for monitoring."""

from typing import TYPE_CHECKING

from reput.base.lazy import face

if TYPE_CHECKING:
    from reput.wings.fleet.api import survey as survey
else:
    __getattr__, __dir__ = face(__name__)
