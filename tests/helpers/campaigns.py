"""The examples of an admission with state and of a metric, by their paths."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_EXAMPLES: Final = Path(__file__).parents[2] / "examples"
CAMPAIGNS: Final = f"{_EXAMPLES}/admissions/campaigns.py:CampaignAdmission"
CAMPAIGN_STRETCH: Final = f"{_EXAMPLES}/metrics/campaigns.py:metric"
