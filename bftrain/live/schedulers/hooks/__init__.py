"""What a scheduler runs when jobs start and end. These files are copied to where it finds them, not imported."""
