"""Drawing: figures, and the page that holds them; what they show is decided elsewhere."""
