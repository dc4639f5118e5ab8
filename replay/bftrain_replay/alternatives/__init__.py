"""Alternatives: other assumptions and settings for a replay, and the advice that follows."""
