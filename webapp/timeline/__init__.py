"""The timeline: lanes over time, and what the browser asks for while zooming."""
