"""Parts by name: objectives, admissions and metrics, registered or out of a Python file."""
