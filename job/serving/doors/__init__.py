"""Doors of a server: Flight and HTTP, in one process or several, with bounds before whatever they let in."""
