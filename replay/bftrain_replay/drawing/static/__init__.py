"""Static drawing: a chart as SVG inside a page, for paper and for browsers without JavaScript."""
