-- Hear a channel on this session.
-- writes: nothing
LISTEN {channel}
