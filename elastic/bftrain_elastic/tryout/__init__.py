"""tryout."""
