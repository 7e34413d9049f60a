"""Who: tenants, the keys of those who call, and the record of what they changed.

Every definition, key and audit event belongs to one tenant. ``scoping`` is the one
place where rows are chosen by tenant; ``actor`` says who acts and what they may;
``keys`` lets a caller in; ``audit`` writes down what was changed.

Invariants: a key's text is nowhere but with its holder; an audit event is written in
the transaction of the change it tells of, and never changed or deleted after.
"""
