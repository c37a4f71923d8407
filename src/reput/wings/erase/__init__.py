"""Remove messages from a copy of a store, or from an archive: their bodies, properties, keys and tags codes.

`choosing` selects the messages and all copies of them, `overwriting` replaces their bytes, `mentions` searches the rest
for what they contained. `verifying` compares the record of an erasure with its signature and with a store.
"""

from typing import TYPE_CHECKING

from reput.base import face

if TYPE_CHECKING:
    from reput.wings.erase.api import erase as erase
    from reput.wings.erase.report import ErasedMessages as ErasedMessages
    from reput.wings.erase.report import EraseReport as EraseReport
    from reput.wings.erase.report import Mention as Mention
    from reput.wings.erase.report import TableRows as TableRows
    from reput.wings.erase.report import VerifyErasureReport as VerifyErasureReport
    from reput.wings.erase.verifying import verify_erasure as verify_erasure
else:
    __getattr__, __dir__ = face(__name__)
