"""Static pictures: a figure as SVG inside a page, for paper and for browsers without JavaScript."""
