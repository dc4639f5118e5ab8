"""Values: what is passed around. Frozen, validated at birth, with an exact JSON form; they know nothing else."""
