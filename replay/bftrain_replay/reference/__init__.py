"""References that a harvest is compared with: ceiling, dedicated nodes, ideal cluster, fluid shares."""
