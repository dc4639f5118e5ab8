"""Drawing: charts, and the page that holds them; their content is decided elsewhere."""
