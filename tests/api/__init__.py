"""The API, through Django's client; a few through a live server."""
