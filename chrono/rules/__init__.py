"""The rules: pure functions of values, without Django, database, clock or I/O.

Everything that can be decided without looking anything up is decided here; time and
randomness come in as arguments. Instants are whole epoch milliseconds in UTC.
Nothing in here may import anything but the standard library and croniter.
"""
