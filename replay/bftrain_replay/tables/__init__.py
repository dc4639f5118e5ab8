"""Tables: columns and DataFrames."""
