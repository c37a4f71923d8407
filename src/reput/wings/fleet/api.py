"""The operations on a fleet, and their reports."""

from typing import TYPE_CHECKING

from reput.base import face

if TYPE_CHECKING:
    from reput.wings.fleet.faults import broker_faults as broker_faults
    from reput.wings.fleet.lag import LagReport as LagReport
    from reput.wings.fleet.lag import lag as lag
    from reput.wings.fleet.survey import SurveyReport as SurveyReport
    from reput.wings.fleet.survey import survey as survey
else:
    __getattr__, __dir__ = face(__name__)
