-- Delete the admin's sessions that are over, some at a time.
-- writes: django_session
-- index: django_session_expire_date_a5c62663
DELETE FROM django_session WHERE session_key IN (
    SELECT session_key FROM django_session WHERE expire_date < clock_timestamp()
    ORDER BY expire_date LIMIT %(limit)s::integer
)
