"""bftrain_replay."""
