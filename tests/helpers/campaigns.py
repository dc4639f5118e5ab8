"""The example of an admission with state, by its path."""

from __future__ import annotations

from pathlib import Path
from typing import Final

CAMPAIGNS: Final = f"{Path(__file__).parents[2]}/examples/admissions/campaigns.py:CampaignAdmission"
