"""Where a broker that starts now ends the log of a store."""

from contextlib import closing

from reput.core import CommitLogReader, StoreLog, recovered_end
from reput.engine.writer.survey import StoreSurvey


def broker_end(store: StoreSurvey) -> int:
    """Return the end of the log that a broker finds. It checks the records from the place where it begins."""
    with closing(CommitLogReader(StoreLog(store.path, store.storage))) as log:
        start = store.broker_start(log.files)
        return recovered_end(log, start, whole_records=store.config.check_record_crc)
