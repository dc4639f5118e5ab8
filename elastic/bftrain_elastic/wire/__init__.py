"""The wire: authenticated streams, messages and sockets between manager, agents and workers."""
