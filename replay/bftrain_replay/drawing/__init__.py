"""Drawing: charts and the page around them; other packages decide the content."""
