"""Look up many keys at once: an inverted query. `reput.core.MessageStore` answers one question after the other.

`look_up` is the operation: stores, a file or table of keys, an answer in memory or in files. `find` is the same for
`Keys` that a caller has staged (`stage_parts`), with any runner and any place of the staged files; Spark uses it. Its
`Lookup` has the answer in parts (`LookupAnswer`), whose rows `answer_lines` writes as text. `coverage_of` returns the
coverage of the answer from the metadata of its schema (`METADATA_KEY`).

First, the keys are staged: they are written, in parts of some hundred thousand rows, to files that every task can read.
Then IndexFiles and scans of the log yield candidates. A candidate is a key and a physical offset at which a message
with this key may be. Candidates are staged in runs, which are files sorted by physical offset. Finally, the log is read
in order, and a candidate whose record has the key becomes a match.

As in `reput.engine.rebuild`, functions over small picklable tasks do the work. The caller's runner executes them.
"""

from typing import TYPE_CHECKING

from reput.base import face

if TYPE_CHECKING:
    from reput.engine.lookup.answer import LookupAnswer as LookupAnswer
    from reput.engine.lookup.arrow import DEFAULT_COLUMNS as DEFAULT_COLUMNS
    from reput.engine.lookup.arrow import Lookup as Lookup
    from reput.engine.lookup.arrow import LookupOptions as LookupOptions
    from reput.engine.lookup.arrow import LookupStores as LookupStores
    from reput.engine.lookup.arrow import find as find
    from reput.engine.lookup.coverage import METADATA_KEY as METADATA_KEY
    from reput.engine.lookup.coverage import CoverageForm as CoverageForm
    from reput.engine.lookup.coverage import coverage_of as coverage_of
    from reput.engine.lookup.key_parts import KeyPart as KeyPart
    from reput.engine.lookup.key_parts import stage_parts as stage_parts
    from reput.engine.lookup.keys import Keys as Keys
    from reput.engine.lookup.lines import PLAIN as PLAIN
    from reput.engine.lookup.lines import LineFormat as LineFormat
    from reput.engine.lookup.lines import LineStyle as LineStyle
    from reput.engine.lookup.lines import answer_lines as answer_lines
    from reput.engine.lookup.local_files import AnswerFormat as AnswerFormat
    from reput.engine.lookup.operation import FileLookup as FileLookup
    from reput.engine.lookup.operation import look_up as look_up
    from reput.engine.lookup.warm_up import warm_up_look_up as warm_up_look_up
else:
    __getattr__, __dir__ = face(__name__)
