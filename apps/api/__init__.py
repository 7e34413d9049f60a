"""The HTTP API: one of the doors.

Promises: every answer is JSON, every refusal is a problem document (RFC 9457) with a
stable code and the field at fault, and no text from a client is trusted before it was
read. A door decides nothing: it reads a request, calls down into the rooms, and puts
what they return into public words.

Tables: none.
"""
