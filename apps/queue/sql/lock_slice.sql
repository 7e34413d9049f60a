-- Lock a slice against everybody, to look whether it is still empty.
-- writes: nothing
LOCK TABLE {slice} IN ACCESS EXCLUSIVE MODE
