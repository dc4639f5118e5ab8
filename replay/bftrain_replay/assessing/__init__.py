"""Assessment: the weekly value of a log's idle nodes, its uncertainty, and its dependence on assumptions."""
