"""The API of a live run: JSON over HTTP, its routes and their description, figures for Prometheus, the status page."""
