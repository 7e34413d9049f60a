"""When: leadership of partitions, the wheel in memory, the fenced fire.

A scheduler process holds an even share of the 64 partitions by advisory locks, begins
a term in each (a higher fence), loads what comes due within a minute into its wheel
and fires it in batches, each one statement that carries fence, term and epoch. The
wheel is a cache of the timer tables: losing it loses nothing.

The leader of partition 0 also keeps the tables: buckets, days, slices, sweep.
"""
